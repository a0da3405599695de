//! Cutting a journal where it is damaged, so that it can be used again. An operator asks for it, by hand.
//!
//! What is kept is the record before the first damage: a sequence behind a hole means nothing. What is cut is moved into
//! files of its own first. The epoch rises, so that no sequence means two things, and a child that is not known to have
//! stopped where the kept record ends needs a reseed.

use std::collections::VecDeque;

use super::disk::{Disk, read_full, write_whole, zero};
use super::inspect::{Damage, Inspection, inspect};
use super::recover::{Found, io_error, recover};
use super::shared::{Shared, file_name, ordinal_of};
use super::slots::{self, SlotFile, Told, name_hash};
use super::supply::Supply;
use super::walk::behind;
use super::writer::{Head, Identity, Writer};
use super::{OpenError, clear};
use crate::journal::state::State;
use crate::mirror::durable::{Mark, Slot};
use crate::route::Standing;
use crate::sync::Arc;

/// What a repair does, or has done.
#[derive(Debug)]
pub struct Repair {
    /// Where it cuts, if anything is damaged.
    pub cut: Option<Damage>,
    /// The last change that is kept.
    pub kept: u64,
    /// The last change that can be read now.
    pub last_seen: u64,
    /// The epoch that begins.
    pub epoch: u64,
    /// Children that need a reseed then, and why.
    pub reseed: Vec<(Box<str>, String)>,
    /// Files that what is cut is moved to; empty before it is done.
    pub moved: Vec<String>,
    places: Vec<(usize, Slot)>,
}

/// What would be done; `None` if nothing is wrong.
///
/// # Errors
/// It cannot be read, or nothing of it can be kept.
pub fn plan(disk: &dyn Disk) -> Result<Option<Repair>, OpenError> {
    let seen = inspect(disk, |_, _, _| {})?;
    let Some(state) = &seen.state else {
        let why = "nothing of it can be kept: move the directory away, start anew and attach every child".to_owned();
        return Err(OpenError::Foreign { path: disk.path(""), why });
    };
    let oldest = seen.segments.first().map_or(1, |segment| segment.header.first_sequence);
    let boot_id = disk.boot_id();
    let cut = seen.damage.first().cloned();
    let mut repair = Repair {
        kept: state.last,
        last_seen: seen.last_seen.max(state.last),
        epoch: seen.segments.iter().map(|segment| segment.header.epoch).max().unwrap_or(0).max(state.epoch) + 1,
        reseed: Vec::new(),
        moved: Vec::new(),
        places: Vec::new(),
        cut,
    };
    for (place, name) in state.members.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        let own = seen.slots.iter().filter(|told| told.name_hash == name_hash(name) && told.epoch >= state.epoch);
        let told = own.max_by_key(|told| (told.slot.applied, told.slot.begun));
        match repair.judge(state, name, told, boot_id, oldest) {
            Ok(slot) => repair.places.push((place, slot)),
            Err(why) => repair.reseed.push((name.clone(), why)),
        }
    }
    let is_needed = repair.cut.is_some() || !repair.reseed.is_empty();
    Ok(is_needed.then_some(repair))
}

/// Does it.
///
/// # Errors
/// The journal is in use, or cannot be written. What was moved by then is beside it.
pub fn repair(disk: &Arc<dyn Disk>) -> Result<Option<Repair>, OpenError> {
    let lock = disk.lock().map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => OpenError::Locked { path: disk.path("lock") },
        _ => io_error(&**disk, "lock", error),
    })?;
    let Some(mut repair) = plan(&**disk)? else {
        return Ok(None);
    };
    if let Some(cut) = repair.cut.clone() {
        repair.moved = take_out(&**disk, &cut)?;
    }
    let (group, mode, segment_bytes) = {
        let Inspection { segments, .. } = inspect(&**disk, |_, _, _| {})?;
        let last = segments.last().map(|segment| segment.header.clone());
        last.map(|header| (header.group, header.mode, header.bytes)).unwrap_or_default()
    };
    let Found { segments, tail, useless, next_ordinal: _ } = recover(&**disk, &group, &mode)?;
    clear(&**disk, &useless, tail.as_ref())?;
    let Some(tail) = tail else {
        let why = "nothing of it is left: move the directory away, start anew and attach every child".to_owned();
        return Err(OpenError::Foreign { path: disk.path(""), why });
    };
    let next = tail.header.ordinal + 1;
    let supply = Supply::new(Arc::clone(disk), segment_bytes, next, 0, false);
    let supply = supply.map_err(|error| io_error(&**disk, "", error))?;
    let shared = Arc::new(Shared::new(Arc::clone(disk), segments, tail.state.last));
    let (members, kept) = (tail.state.members.clone(), tail.state.last);
    let head =
        Head { file: tail.file, segment: shared.last(), written: tail.end, synced: tail.end, last_crc: tail.last_crc };
    let identity = Identity { group, mode, segment_bytes };
    let mut writer = Writer::resume(Arc::clone(&shared), identity, supply, u64::MAX, tail.state, head, lock);
    let mut marks = Vec::new();
    for (name, why) in &repair.reseed {
        let child = members.iter().position(|member| member == name).unwrap_or_default();
        marks.push(Mark::Standing { child, standing: Standing::NeedsReseed, why: why.clone() });
    }
    let failed = |error: crate::mirror::durable::JournalFailed| io_error(&**disk, "", std::io::Error::other(error.why));
    writer.commit_start(Some((repair.epoch, kept + 1, kept)), &marks).map_err(failed)?;
    let mut slots = vec![Slot { applied: 0, begun: 0 }; members.len()];
    for (place, slot) in &repair.places {
        slots[*place] = *slot;
    }
    SlotFile::make(shared, &slots, repair.epoch, false).map_err(|error| io_error(&**disk, slots::NAME, error))?;
    Ok(Some(repair))
}

impl Repair {
    /// May the child go on, and from where? If not, why not.
    fn judge(
        &self,
        state: &State,
        name: &str,
        told: Option<&Told>,
        boot_id: [u8; 16],
        oldest: u64,
    ) -> Result<Slot, String> {
        let known = &state.children[name];
        let kept = self.kept;
        let slot = match told {
            Some(told) if told.slot.begun > kept || told.epoch > state.epoch => {
                return Err(format!("it has come to change {} and the record was cut at {kept}", told.slot.applied));
            }
            Some(told) if told.is_synced || told.boot_id == boot_id => told.slot,
            // How far it had come is not known.
            _ if self.cut.is_some() => {
                return Err(format!("it may have come past change {kept}, where the record was cut"));
            }
            Some(told) => Slot { applied: told.slot.applied, begun: kept },
            None => Slot { applied: known.applied, begun: kept },
        };
        let applied = slot.applied.max(known.applied);
        if known.standing == Standing::Live && applied + 1 < oldest {
            return Err(format!("it has confirmed {applied}, and the oldest change on record is {oldest}"));
        }
        Ok(Slot { applied, begun: slot.begun.max(applied) })
    }
}

/// Moves what lies behind the damage into files of its own.
fn take_out(disk: &dyn Disk, cut: &Damage) -> Result<Vec<String>, OpenError> {
    let names = disk.list().map_err(|error| io_error(disk, "", error))?;
    let mut ordinals: VecDeque<u64> = names.iter().filter_map(|name| ordinal_of(name)).collect();
    ordinals.make_contiguous().sort_unstable();
    ordinals.retain(|ordinal| *ordinal >= cut.ordinal);
    let mut moved = Vec::new();
    // The later ones first: if we are stopped here, the damage is still where it was.
    for ordinal in ordinals.into_iter().rev() {
        let name = file_name(ordinal);
        let side = format!("cut-{}-{name}", disk.unix_ms());
        let failed = |error| io_error(disk, &name, error);
        if ordinal > cut.ordinal && is_spare(disk, &name).map_err(failed)? {
            continue;
        }
        if ordinal > cut.ordinal || cut.from == 0 {
            disk.rename(&name, &side).map_err(failed)?;
        } else {
            let file = disk.open(&name).map_err(failed)?;
            let copy = disk.create(&side).map_err(|error| io_error(disk, &side, error))?;
            let mut octets = vec![0; 1024 * 1024];
            let mut at = cut.from;
            loop {
                let read = read_full(&*file, &mut octets, at).map_err(failed)?;
                if read == 0 {
                    break;
                }
                write_whole(&*copy, &octets[..read], at - cut.from).map_err(|error| io_error(disk, &side, error))?;
                at += read as u64;
            }
            copy.sync_data().map_err(|error| io_error(disk, &side, error))?;
            disk.sync_dir().map_err(failed)?;
            zero(&*file, cut.from, at).and_then(|()| file.sync_data()).map_err(failed)?;
        }
        moved.push(disk.path(&side));
    }
    disk.sync_dir().map_err(|error| io_error(disk, "", error))?;
    Ok(moved)
}

/// Has nothing been written to it yet?
fn is_spare(disk: &dyn Disk, name: &str) -> std::io::Result<bool> {
    let file = disk.open(name)?;
    Ok(behind(&*file, None, 0)?.used_end == 0)
}
