//! Cutting a journal where it is damaged, so that it can be used again. An operator asks for it, by hand.
//!
//! What is kept is the record before the first damage: a sequence behind a hole means nothing. What is cut is moved into
//! files of its own first. The epoch rises, so that no sequence means two things, and a child that is not known to have
//! stopped where the kept record ends needs a reseed. Where nothing can be kept, another journal begins that knows no
//! child: each that comes is new to it, and needs a reseed.

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
use crate::journal::record::Previous;
use crate::journal::state::State;
use crate::limits::SEGMENT_BYTES;
use crate::mirror::durable::{Mark, Slot};
use crate::route::Standing;
use crate::sync::Arc;

/// What a repair does, or has done.
#[derive(Debug)]
pub struct Repair {
    /// Where it cuts, if anything is damaged.
    pub cut: Option<Damage>,
    /// Nothing can be kept: another journal begins, in which every child needs a reseed, whatever its name.
    pub anew: bool,
    /// The last change that is kept; of what begins anew, the last that may have been.
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
/// It cannot be read.
pub fn plan(disk: &dyn Disk) -> Result<Option<Repair>, OpenError> {
    let seen = inspect(disk, |_, _, _| {})?;
    let Some(state) = &seen.state else {
        return Ok(seen.refusal.is_some().then(|| plan_anew(disk, &seen)));
    };
    let oldest = seen.segments.first().map_or(1, |segment| segment.header.first_sequence);
    let boot_id = disk.boot_id();
    let cut = seen.damage.first().cloned();
    let mut repair = Repair {
        anew: false,
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
    if repair.cut.is_some() || !repair.reseed.is_empty() {
        return Ok(Some(repair));
    }
    // What a start refuses although nothing is to be cut is not for us to mend.
    seen.refusal.map_or(Ok(None), Err)
}

/// Of a journal of which nothing can be kept. That changes were on record is all that the new one knows: so every child
/// that comes is new to it.
fn plan_anew(disk: &dyn Disk, seen: &Inspection) -> Repair {
    let headers = || seen.segments.iter().map(|segment| &segment.header);
    let epochs = headers().map(|header| header.epoch).chain(seen.slots.iter().map(|told| told.epoch));
    let begun = seen.slots.iter().map(|told| told.slot.begun);
    let before = headers().map(|header| header.first_sequence.saturating_sub(1)).chain(begun).max().unwrap_or(0);
    let last = before.max(seen.last_seen).max(1);
    Repair {
        anew: true,
        cut: seen.damage.first().cloned(),
        kept: last,
        last_seen: last,
        // What cannot be read may have been of a later epoch than what can.
        epoch: epochs.max().map_or(0, |epoch| epoch.saturating_add(1)).max(disk.unix_ms()),
        reseed: Vec::new(),
        moved: Vec::new(),
        places: Vec::new(),
    }
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
    if repair.anew {
        begin_anew(disk, &mut repair, lock)?;
        return Ok(Some(repair));
    }
    if let Some(cut) = repair.cut.clone() {
        repair.moved = take_out(&**disk, &cut)?;
    }
    let seen = inspect(&**disk, |_, _, _| {})?;
    let (group, mode) = seen.identity();
    let segment_bytes = seen.segments.last().map_or(SEGMENT_BYTES, |segment| segment.header.bytes);
    let Found { segments, tail, useless, next_ordinal: _ } = recover(&**disk, &group, &mode)?;
    clear(&**disk, &useless, tail.as_ref())?;
    let Some(tail) = tail else {
        let why = "nothing of it is left: repair it once more, then another journal begins".to_owned();
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

/// Begins another journal, and moves the files of the one before aside.
fn begin_anew(disk: &Arc<dyn Disk>, repair: &mut Repair, lock: Box<dyn Send>) -> Result<(), OpenError> {
    let failed = |error: crate::mirror::durable::JournalFailed| io_error(&**disk, "", std::io::Error::other(error.why));
    let seen = inspect(&**disk, |_, _, _| {})?;
    let (group, mode) = seen.identity();
    let segment_bytes = seen.segments.last().map_or(SEGMENT_BYTES, |segment| segment.header.bytes);
    let names = disk.list().map_err(|error| io_error(&**disk, "", error))?;
    let ordinals: Vec<u64> = names.iter().filter_map(|name| ordinal_of(name)).collect();
    // The new one first, behind a gap: if we are stopped here, a start takes what lies before a gap for released, and
    // it never takes the children for identical.
    let next = ordinals.iter().max().map_or(1, |last| last + 2);
    let mut supply =
        Supply::new(Arc::clone(disk), segment_bytes, next, 0, false).map_err(|error| io_error(&**disk, "", error))?;
    let made = supply.take().map_err(|why| io_error(&**disk, "", std::io::Error::other(why)))?;
    let state = State { epoch: repair.epoch, epoch_first: repair.kept + 1, last: repair.kept, ..State::default() };
    let identity = Identity { group, mode, segment_bytes };
    let (head, header) = Writer::begin(made, &identity, Previous::default(), &state, disk.random(), disk.unix_ms());
    let shared = Arc::new(Shared::new(Arc::clone(disk), VecDeque::from([Arc::clone(&head.segment)]), repair.kept));
    let mut writer = Writer::resume(Arc::clone(&shared), identity, supply, u64::MAX, state, head, lock);
    writer.begin_buffer(header);
    writer.commit_start(Some((repair.epoch, repair.kept + 1, repair.kept)), &[]).map_err(failed)?;
    let now = disk.unix_ms();
    for name in names.iter().filter(|name| ordinal_of(name).is_some() || *name == slots::NAME) {
        let side = format!("cut-{now}-{name}");
        disk.rename(name, &side).map_err(|error| io_error(&**disk, name, error))?;
        repair.moved.push(disk.path(&side));
    }
    SlotFile::make(shared, &[], repair.epoch, false).map_err(|error| io_error(&**disk, slots::NAME, error))?;
    Ok(())
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
