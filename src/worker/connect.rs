//! Connecting to a child: over all addresses its name leads to, and telling our own want from the child's.
//!
//! A connect that fails because *we* have no descriptor, port or memory left says nothing about the child. It must not
//! take a healthy child down.

use rustix::io::Errno;

use crate::io::exec::{Conn, IoError};
use crate::probe::Failure;
use crate::route::Child;
use crate::time::Time;
use crate::worker::Worker;

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoConnection {
    /// We have run out of something.
    Shortage(Errno),
    /// The child took none at any of its addresses.
    Child(Failure),
}

/// A new connection to `child`, until `until`. Each of its addresses is tried once, beginning with the one in use.
pub(super) async fn to_child(worker: &Worker, child: &Child, until: Time) -> Result<Conn, NoConnection> {
    let mut end = NoConnection::Child(Failure::Unresolved);
    for _ in 0..child.addresses.all().len() {
        let Some(address) = child.address() else { break };
        match worker.io.connect(address, until).await {
            Ok(conn) => return Ok(conn),
            Err(IoError::TimedOut) => {
                child.addresses.on_connect_failed(address);
                return Err(NoConnection::Child(Failure::ConnectTimeout));
            }
            Err(IoError::Failed(errno)) if is_ours(errno) => return Err(NoConnection::Shortage(errno)),
            Err(IoError::Failed(_)) => {
                child.addresses.on_connect_failed(address);
                end = NoConnection::Child(Failure::Refused);
            }
        }
    }
    Err(end)
}

/// The want is on our side: descriptors, memory, or ports towards that address.
const fn is_ours(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL)
}
