//! The children's slots: one file, 64 octets a child, written in place by the children's lanes.
//!
//! A slot is written through the page cache: what is in it survives our own end at once, and a power cut if it was
//! synced. So a slot from before the last boot may be an old one. What it says was confirmed was confirmed; what came
//! after it is not known, unless each was synced.
//!
//! ```text
//!  0  4  "slot"                        24  8  begun
//!  4  4  CRC-32C of octets 8..64       32  8  epoch
//!  8  8  FNV-1a of the child's name    40 16  boot id
//! 16  8  applied                       56  1  1 if every write of it is synced; then zeros
//! ```
//!
//! A slot is written whole: 64 octets, aligned, lie in one page and in one sector.

use std::io;

use super::disk::{Disk, File, read_full, write_whole};
use super::shared::Shared;
use crate::crash;
use crate::mirror::durable::{JournalFailed, Slot, Slots};
use crate::sync::Arc;

/// The file's name.
pub(super) const NAME: &str = "children";
/// While it is made anew.
const NEW: &str = "children.new";
const SLOT_BYTES: usize = 64;
const MAGIC: &[u8; 4] = b"slot";

/// What a slot of the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) name_hash: u64,
    pub(super) slot: Slot,
    pub(super) epoch: u64,
    pub(super) boot_id: [u8; 16],
    pub(super) is_synced: bool,
}

/// The open file.
pub(super) struct SlotFile {
    shared: Arc<Shared>,
    file: Arc<dyn File>,
    epoch: u64,
    boot_id: [u8; 16],
    /// Sync each write.
    sync_each: bool,
}

// === impl Told ===

impl Told {
    fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut octets = [0; SLOT_BYTES];
        octets[..4].copy_from_slice(MAGIC);
        octets[8..16].copy_from_slice(&self.name_hash.to_le_bytes());
        octets[16..24].copy_from_slice(&self.slot.applied.to_le_bytes());
        octets[24..32].copy_from_slice(&self.slot.begun.to_le_bytes());
        octets[32..40].copy_from_slice(&self.epoch.to_le_bytes());
        octets[40..56].copy_from_slice(&self.boot_id);
        octets[56] = u8::from(self.is_synced);
        let crc = crc32c::crc32c(&octets[8..]);
        octets[4..8].copy_from_slice(&crc.to_le_bytes());
        octets
    }

    fn decode(octets: &[u8; SLOT_BYTES]) -> Option<Self> {
        let u64_at = |at: usize| u64::from_le_bytes(octets[at..at + 8].try_into().expect("eight"));
        let crc = u32::from_le_bytes(octets[4..8].try_into().expect("four"));
        let slot = Slot { applied: u64_at(16), begun: u64_at(24) };
        let holds = octets.starts_with(MAGIC) && crc == crc32c::crc32c(&octets[8..]) && slot.applied <= slot.begun;
        holds.then(|| Self {
            name_hash: u64_at(8),
            slot,
            epoch: u64_at(32),
            boot_id: octets[40..56].try_into().expect("sixteen"),
            is_synced: octets[56] != 0,
        })
    }
}

/// The slots that hold, in any order; none if there is no file.
pub(super) fn read(disk: &dyn Disk) -> io::Result<Vec<Told>> {
    let file = match disk.open(NAME) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    let mut told = Vec::new();
    let mut octets = [0; SLOT_BYTES];
    let mut at = 0;
    while read_full(&*file, &mut octets, at)? == SLOT_BYTES {
        told.extend(Told::decode(&octets));
        at += SLOT_BYTES as u64;
    }
    Ok(told)
}

/// Takes the file away.
pub(super) fn remove(disk: &dyn Disk) -> io::Result<()> {
    match disk.unlink(NAME) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

impl SlotFile {
    /// Writes the file anew, with a slot for each place. Who stands there has been told to `shared`.
    pub(super) fn make(shared: Arc<Shared>, slots: &[Slot], epoch: u64, sync_each: bool) -> io::Result<Self> {
        let disk = Arc::clone(&shared.disk);
        match disk.unlink(NEW) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let made = Self { file: disk.create(NEW)?, shared, epoch, boot_id: disk.boot_id(), sync_each };
        let octets: Vec<u8> =
            slots.iter().enumerate().flat_map(|(place, slot)| made.told(place, *slot).encode()).collect();
        write_whole(&*made.file, &octets, 0)?;
        made.file.sync_data()?;
        disk.rename(NEW, NAME)?;
        disk.sync_dir()?;
        Ok(made)
    }

    fn told(&self, place: usize, slot: Slot) -> Told {
        Told {
            name_hash: self.shared.name_hash(place),
            slot,
            epoch: self.epoch,
            boot_id: self.boot_id,
            is_synced: self.sync_each,
        }
    }
}

impl Slots for SlotFile {
    fn put(&self, child: usize, slot: Slot, sync: bool) -> Result<(), JournalFailed> {
        let octets = self.told(child, slot).encode();
        crash::point("slot.write");
        let mut done = write_whole(&*self.file, &octets, (child * SLOT_BYTES) as u64);
        if sync || self.sync_each {
            done = done.and_then(|()| self.file.sync_data());
        }
        done.map_err(|error| {
            let path = self.shared.disk.path(NAME);
            self.shared.fail(format!("{path} could not be written: {error}; restart antiphon"))
        })
    }
}

/// FNV-1a, 64 bits: a name in a slot of a fixed size.
pub(super) fn name_hash(name: &str) -> u64 {
    let step = |hash: u64, octet: u8| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}
