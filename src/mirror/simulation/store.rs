//! What keeps the changes of a story: the model journal here, the real one where its files are.

use super::Random;
use crate::mirror::durable::{ReadError, Reader, Stored};
use crate::mirror::model::Model;
use crate::mirror::testing::kept_by;
use crate::mirror::{Durable, Wake};
use crate::sync::Arc;

/// What outlives antiphon.
pub(crate) trait Store {
    /// antiphon ends without a word, by a kill or with the power.
    fn end(&mut self, power_cut: bool);

    /// antiphon starts, with these children in this order (an empty name: nobody). `None` if it was stopped meanwhile.
    fn start(&mut self, children: &[Box<str>], reader: Arc<dyn Wake>) -> Option<Durable>;

    /// The reader thread reads.
    fn read(&mut self, from: u64, bytes_max: usize) -> Result<Vec<Stored>, ReadError>;

    /// Something happens to it.
    fn disturb(&mut self, random: &mut Random);

    /// The next start, too, may be stopped.
    fn disturb_start(&mut self, random: &mut Random);

    /// Nothing happens to it any more.
    fn calm(&mut self);

    /// Is antiphon as good as dead, since nothing on the disk works any more?
    fn is_stopped(&self) -> bool;

    /// Is a child its name, wherever it stands? If not, it is its place.
    fn knows_names(&self) -> bool;

    /// The last change that readers may see, and the oldest.
    fn extent(&self) -> (u64, u64);

    /// What it takes is within its limits.
    ///
    /// # Panics
    /// If not.
    fn check_limits(&self);
}

impl Store for Model {
    fn end(&mut self, power_cut: bool) {
        self.set_full(false);
        self.end_life(power_cut);
    }

    fn start(&mut self, _: &[Box<str>], reader: Arc<dyn Wake>) -> Option<Durable> {
        Some(kept_by(self, self.was_cut(), reader))
    }

    fn read(&mut self, from: u64, bytes_max: usize) -> Result<Vec<Stored>, ReadError> {
        // It counts changes where others count octets.
        Reader::read(self, from, bytes_max.min(4))
    }

    fn disturb(&mut self, random: &mut Random) {
        let (on_record, full) = (random.chance(50), random.chance(50));
        if random.chance(30) {
            self.fail_next(on_record);
        } else {
            self.set_full(full);
        }
    }

    fn disturb_start(&mut self, _: &mut Random) {}

    fn calm(&mut self) {}

    fn is_stopped(&self) -> bool {
        false
    }

    fn knows_names(&self) -> bool {
        false
    }

    fn extent(&self) -> (u64, u64) {
        (self.last(), self.oldest())
    }

    fn check_limits(&self) {}
}
