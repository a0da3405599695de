//! Idle connections to children, one set a child, last in first out: the warmest is used next.
//!
//! A connection lies here only when its last exchange ended exactly: the answer complete, the request sent whole,
//! nothing behind it, and neither side announced a close. While it lies here anything that happens to it (octets, the
//! end, an error) ends it; an answer that nobody asked for can never meet the next request.

use std::cell::RefCell;

use crate::io::exec::{Conn, ConnId, Pooled};
use crate::limits::{POOL_IDLE, POOL_IDLE_MAX};
use crate::time::Time;

/// Names a child: group and place in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChildKey {
    /// Index of the group.
    pub(crate) group: usize,
    /// Index in the group.
    pub(crate) child: usize,
}

/// The pools of one worker.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// By group and child. Each at most [`POOL_IDLE_MAX`] long, oldest first.
    idle: RefCell<Vec<Vec<Vec<Pooled>>>>,
}

impl Pool {
    /// The connection used last, if any is left.
    pub(crate) fn take(&self, key: ChildKey, now: Time) -> Option<Conn> {
        let mut idle = self.idle.borrow_mut();
        let list = idle.get_mut(key.group)?.get_mut(key.child)?;
        while let Some(pooled) = list.pop() {
            if pooled.idle_since() + POOL_IDLE > now
                && let Some(conn) = pooled.take()
            {
                return Some(conn);
            }
        }
        None
    }

    /// Lays a connection down for the next request.
    pub(crate) fn put(&self, key: ChildKey, conn: Conn) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() <= key.group {
            idle.resize_with(key.group + 1, Vec::new);
        }
        let group = &mut idle[key.group];
        if group.len() <= key.child {
            group.resize_with(key.child + 1, Vec::new);
        }
        let list = &mut group[key.child];
        if list.len() >= POOL_IDLE_MAX {
            list.remove(0);
        }
        list.push(conn.park_pooled());
    }

    /// Something happened to an idle connection: it is closed.
    pub(crate) fn drop_broken(&self, id: ConnId) {
        for list in self.idle.borrow_mut().iter_mut().flatten() {
            if let Some(index) = list.iter().position(|pooled| pooled.id() == id) {
                list.remove(index);
                return;
            }
        }
    }

    /// Closes what has lain idle for [`POOL_IDLE`].
    pub(crate) fn sweep(&self, now: Time) {
        for list in self.idle.borrow_mut().iter_mut().flatten() {
            list.retain(|pooled| pooled.idle_since() + POOL_IDLE > now);
        }
    }

    /// Closes every idle connection of one child: it was found dead, so the others are too.
    pub(crate) fn forget(&self, key: ChildKey) {
        if let Some(list) = self.idle.borrow_mut().get_mut(key.group).and_then(|group| group.get_mut(key.child)) {
            list.clear();
        }
    }
}
