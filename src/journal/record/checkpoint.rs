//! A checkpoint: the whole [`State`] as octets and back.

use super::Bad;
use super::entry::{members, put_members, standing, standing_code, verdict, verdict_code};
use super::octets::{Input, put_count, put_text, put_u64};
use crate::journal::state::{Known, State};
use crate::limits::WHY_BYTES_MAX;

impl State {
    /// Appends it.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for value in [self.epoch, self.epoch_first, self.last] {
            put_u64(out, value);
        }
        put_members(out, &self.members);
        put_count(out, self.children.len());
        for (name, child) in &self.children {
            put_text(out, name, usize::from(u16::MAX));
            put_u64(out, child.applied);
            put_u64(out, child.attached);
            out.push(standing_code(child.standing));
            put_text(out, &child.why, WHY_BYTES_MAX);
        }
        put_count(out, self.exceptions.len());
        for (sequence, verdict) in &self.exceptions {
            put_u64(out, *sequence);
            out.push(verdict_code(*verdict));
        }
        put_count(out, self.kept.len());
        for (after, through) in &self.kept {
            put_u64(out, *after);
            put_u64(out, *through);
        }
        put_count(out, self.live.len());
        for sequence in &self.live {
            put_u64(out, *sequence);
        }
    }

    /// Reads it.
    pub(super) fn decode(input: &mut Input) -> Result<Self, Bad> {
        let [epoch, epoch_first, last] = [input.u64()?, input.u64()?, input.u64()?];
        let mut state = Self { epoch, epoch_first, last, members: members(input)?, ..Self::default() };
        for _ in 0..input.count(21)? {
            let name = input.text()?;
            let known = Known {
                applied: input.u64()?,
                attached: input.u64()?,
                standing: standing(input)?,
                why: input.text()?.into(),
            };
            state.children.insert(name, known);
        }
        for _ in 0..input.count(9)? {
            state.exceptions.insert(input.u64()?, verdict(input)?);
        }
        for _ in 0..input.count(16)? {
            state.kept.push((input.u64()?, input.u64()?));
        }
        for _ in 0..input.count(8)? {
            state.live.insert(input.u64()?);
        }
        state.check()?;
        Ok(state)
    }
}
