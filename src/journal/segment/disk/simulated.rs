//! A disk for tests: it fails as told, stops at any operation, and after a power cut keeps of what was not synced what a
//! seed decides.
//!
//! What is lost after a power cut: each part of 512 octets of each write since the file's last sync, by itself; each
//! change of a name since the directory's last sync, by itself. After a kill nothing is lost. Handles from before
//! either are dead.
#![expect(clippy::disallowed_types, reason = "a lock is the simplest world")]

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use super::{Disk, File};

/// What changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Create,
    Rename,
    Unlink,
    SyncDir,
    Write,
    Sync,
    Allocate,
}

/// How an operation fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Error(io::ErrorKind),
    /// About half of what was to be written.
    Short,
}

#[derive(Clone)]
pub(crate) struct Simulated {
    world: Arc<Mutex<World>>,
}

struct Handle {
    world: Arc<Mutex<World>>,
    id: usize,
    /// Of the world when it was opened.
    life: u64,
}

struct Lock {
    world: Arc<Mutex<World>>,
    life: u64,
}

struct World {
    chance: u64,
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    names_synced: BTreeMap<String, usize>,
    /// Since the last sync of the directory.
    renamed: Vec<Renamed>,
    /// Operations so far.
    ops: u64,
    /// From this operation on nothing works.
    stop_at: u64,
    /// The next operation of this kind fails like this.
    fault: Option<(Op, Fault)>,
    /// Octets that files may have in all.
    space: u64,
    locked: bool,
    life: u64,
    boots: u64,
    unix_ms: u64,
}

#[derive(Clone, Default)]
struct Content {
    synced: Vec<u8>,
    now: Vec<u8>,
    /// Since the last sync: position and octets.
    writes: Vec<(usize, Vec<u8>)>,
    syncs: u64,
}

#[derive(Clone)]
enum Renamed {
    Link(String, usize),
    Unlink(String),
    Rename(String, String, usize),
}

impl Simulated {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            world: Arc::new(Mutex::new(World {
                chance: seed,
                files: Vec::new(),
                names: BTreeMap::new(),
                names_synced: BTreeMap::new(),
                renamed: Vec::new(),
                ops: 0,
                stop_at: u64::MAX,
                fault: None,
                space: u64::MAX,
                locked: false,
                life: 0,
                boots: 1,
                unix_ms: 1_700_000_000_000,
            })),
        }
    }

    /// A disk of the same content that goes its own way.
    pub(crate) fn copy(&self) -> Self {
        let world = self.lock_world();
        let copy = World {
            files: world.files.clone(),
            names: world.names.clone(),
            names_synced: world.names_synced.clone(),
            renamed: world.renamed.clone(),
            fault: world.fault,
            locked: false,
            ..*world
        };
        Self { world: Arc::new(Mutex::new(copy)) }
    }

    /// The power is cut and comes back.
    pub(crate) fn cut_power(&self) {
        let mut world = self.lock_world();
        // How much is lost differs from cut to cut: nothing, all, or each part by itself.
        let mood = world.chance() % 4;
        let keeps = |world: &mut World| match mood {
            0 => false,
            1 => true,
            _ => world.chance().is_multiple_of(2),
        };
        for renamed in std::mem::take(&mut world.renamed) {
            if keeps(&mut world) {
                renamed.apply(&mut world.names_synced);
            }
        }
        world.names = world.names_synced.clone();
        for id in 0..world.files.len() {
            let writes = std::mem::take(&mut world.files[id].writes);
            let mut parts: Vec<(usize, Vec<u8>)> = Vec::new();
            for (position, octets) in writes {
                let mut at = 0;
                while at < octets.len() {
                    let sector_end = (position + at) / 512 * 512 + 512;
                    let end = octets.len().min(sector_end - position);
                    parts.push((position + at, octets[at..end].to_vec()));
                    at = end;
                }
            }
            for (position, octets) in parts {
                if keeps(&mut world) {
                    put(&mut world.files[id].synced, position, &octets);
                }
            }
            let content = &mut world.files[id];
            content.now = content.synced.clone();
        }
        world.boots += 1;
        world.restart();
    }

    /// The process is killed.
    pub(crate) fn kill(&self) {
        self.lock_world().restart();
    }

    /// From the `ops`-th operation on, from now, nothing works; that one may take place in part.
    pub(crate) fn stop_after(&self, ops: u64) {
        let mut world = self.lock_world();
        world.stop_at = world.ops + ops;
    }

    pub(crate) fn is_stopped(&self) -> bool {
        let world = self.lock_world();
        world.ops >= world.stop_at
    }

    pub(crate) fn ops(&self) -> u64 {
        self.lock_world().ops
    }

    pub(crate) fn fail_next(&self, op: Op, fault: Fault) {
        self.lock_world().fault = Some((op, fault));
    }

    pub(crate) fn set_space(&self, bytes: u64) {
        self.lock_world().space = bytes;
    }

    /// Octets of all files that have a name.
    pub(crate) fn used(&self) -> u64 {
        self.lock_world().used()
    }

    /// The wall clock is set, by so many milliseconds.
    pub(crate) fn jump_clock(&self, ms: i64) {
        let mut world = self.lock_world();
        world.unix_ms = world.unix_ms.saturating_add_signed(ms);
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.lock_world().names.keys().cloned().collect()
    }

    pub(crate) fn content(&self, name: &str) -> Vec<u8> {
        let world = self.lock_world();
        world.files[world.names[name]].now.clone()
    }

    /// Changes a file behind everybody's back, for good.
    pub(crate) fn edit(&self, name: &str, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut world = self.lock_world();
        let id = world.names[name];
        let content = &mut world.files[id];
        edit(&mut content.now);
        content.synced = content.now.clone();
        content.writes.clear();
    }

    /// How often a file was synced.
    pub(crate) fn syncs(&self, name: &str) -> u64 {
        let world = self.lock_world();
        world.files[world.names[name]].syncs
    }

    fn lock_world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no test panics under it")
    }

    fn handle(&self, world: &World, id: usize) -> Arc<dyn File> {
        Arc::new(Handle { world: Arc::clone(&self.world), id, life: world.life })
    }
}

impl World {
    /// SplitMix64.
    fn chance(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.chance;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn restart(&mut self) {
        self.locked = false;
        self.life += 1;
        self.stop_at = u64::MAX;
        self.fault = None;
    }

    /// Counts an operation. An error if it does not take place at all; else how it fails, if it does.
    fn begin(&mut self, op: Op) -> io::Result<Option<Fault>> {
        self.ops += 1;
        if self.ops > self.stop_at {
            return Err(stopped());
        }
        match self.fault {
            Some((kind, fault)) if kind == op => {
                self.fault = None;
                match fault {
                    Fault::Error(kind) => Err(kind.into()),
                    Fault::Short => Ok(Some(fault)),
                }
            }
            _ => Ok(None),
        }
    }

    /// The operation has taken place; nobody learns of it if it was the last.
    fn end<T>(&self, done: T) -> io::Result<T> {
        if self.ops >= self.stop_at { Err(stopped()) } else { Ok(done) }
    }

    fn rename(&mut self, renamed: Renamed) {
        renamed.apply(&mut self.names);
        self.renamed.push(renamed);
    }

    fn used(&self) -> u64 {
        let live: std::collections::BTreeSet<usize> = self.names.values().copied().collect();
        live.iter().map(|id| self.files[*id].now.len() as u64).sum()
    }
}

impl Renamed {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Link(name, id) => _ = names.insert(name.clone(), *id),
            Self::Unlink(name) => _ = names.remove(name),
            Self::Rename(from, to, id) => {
                names.remove(from);
                names.insert(to.clone(), *id);
            }
        }
    }
}

impl Disk for Simulated {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut world = self.lock_world();
        world.begin(Op::Create)?;
        if world.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = world.files.len();
        world.files.push(Content::default());
        world.rename(Renamed::Link(name.to_owned(), id));
        let handle = self.handle(&world, id);
        world.end(handle)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let world = self.lock_world();
        let id = world.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.handle(&world, *id))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.lock_world();
        world.begin(Op::Rename)?;
        let id = *world.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        world.rename(Renamed::Rename(from.to_owned(), to.to_owned(), id));
        world.end(())
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        let mut world = self.lock_world();
        world.begin(Op::Unlink)?;
        if !world.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        world.rename(Renamed::Unlink(name.to_owned()));
        world.end(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut world = self.lock_world();
        world.begin(Op::SyncDir)?;
        world.end(())?;
        world.names_synced = world.names.clone();
        world.renamed.clear();
        Ok(())
    }

    fn lock(&self) -> io::Result<Box<dyn Send>> {
        let mut world = self.lock_world();
        if std::mem::replace(&mut world.locked, true) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Lock { world: Arc::clone(&self.world), life: world.life }))
    }

    fn path(&self, name: &str) -> String {
        format!("/simulated/{name}")
    }

    fn unix_ms(&self) -> u64 {
        self.lock_world().unix_ms
    }

    fn random(&self) -> u64 {
        self.lock_world().chance()
    }

    fn boot_id(&self) -> [u8; 16] {
        u128::from(self.lock_world().boots).to_le_bytes()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut world = self.world.lock().expect("no test panics under it");
        if world.life == self.life {
            world.locked = false;
        }
    }
}

impl Handle {
    fn world(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.world.lock().expect("no test panics under it");
        if world.life == self.life { Ok(world) } else { Err(stopped()) }
    }
}

impl File for Handle {
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        let world = self.world()?;
        let octets = &world.files[self.id].now;
        let start = octets.len().min(position as usize);
        let count = into.len().min(octets.len() - start);
        into[..count].copy_from_slice(&octets[start..start + count]);
        Ok(count)
    }

    fn write_at(&self, octets: &[u8], position: u64) -> io::Result<usize> {
        let mut world = self.world()?;
        let taken = match world.begin(Op::Write)? {
            // Like a power cut, it ends between sectors.
            Some(Fault::Short) => (octets.len() / 2).saturating_sub((position as usize + octets.len() / 2) % 512),
            _ => octets.len(),
        };
        let content = &mut world.files[self.id];
        put(&mut content.now, position as usize, &octets[..taken]);
        content.writes.push((position as usize, octets[..taken].to_vec()));
        world.end(taken)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut world = self.world()?;
        world.files[self.id].syncs += 1;
        world.begin(Op::Sync)?;
        world.end(())?;
        let content = &mut world.files[self.id];
        content.synced = content.now.clone();
        content.writes.clear();
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let mut world = self.world()?;
        world.begin(Op::Allocate)?;
        let more = bytes.saturating_sub(world.files[self.id].now.len() as u64);
        if world.used() + more > world.space {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let content = &mut world.files[self.id];
        let length = content.now.len().max(bytes as usize);
        content.now.resize(length, 0);
        // Its size is durable with the next sync; an octet at its end stands for it.
        content.writes.push((length - 1, vec![content.now[length - 1]]));
        world.end(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.world()?.files[self.id].now.len() as u64)
    }
}

fn put(content: &mut Vec<u8>, position: usize, octets: &[u8]) {
    let length = content.len().max(position + octets.len());
    content.resize(length, 0);
    content[position..position + octets.len()].copy_from_slice(octets);
}

fn stopped() -> io::Error {
    io::Error::other("the machine has stopped")
}
