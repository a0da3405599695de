//! The executor on the simulated driver and on those of the kernel, and what a driver owes.
//!
//! `simulated` tells one story a test, with exact faults. `chaos` runs many tasks under random ones, by seed. `kernel`
//! runs one suite on io_uring and on epoll; where io_uring is refused it says `SKIP:`, or fails if
//! `ANTIPHON_TEST_ALL=1`. No test measures time: clocks of the simulation are moved, and those of the kernel only end
//! waits whose end is what is asserted.
//!
//! # Which hazard is covered where
//!
//! | hazard | test |
//! |---|---|
//! | a receive that ends by itself, or for want of buffers | `a_receive_that_ends_by_itself_is_armed_again`, `starved_receives_wait_until_a_quarter_is_free` |
//! | a fast sender fills all buffers for one slow reader | `receiving_stops_above_the_cap_and_starts_again_below_half`, `octets_nobody_takes_are_copied_out_of_scarce_buffers`, `a_slow_reader_does_not_starve_the_others` |
//! | octets on their way when a receive is cancelled | `octets_that_come_after_the_cancel_are_kept` |
//! | single octets, each in a buffer of its own | `single_octets_are_bounded_by_their_number` |
//! | short sends; one send overtaking another | `a_short_send_is_finished_before_it_is_done`, `a_send_that_waits_pins_no_scarce_buffer`; the simulation asserts one send at a time |
//! | a descriptor closed under a pending operation | `a_connection_is_closed_after_its_last_completion` |
//! | a number used again gets old completions | `a_completion_for_something_gone_is_dropped`, `many_short_connections_leave_nothing_behind` |
//! | a dropped future frees what the kernel uses | `a_task_that_ends_leaves_its_send_to_the_driver`, `a_connect_that_is_given_up_is_closed` |
//! | a given-up send and its connection used again | `a_given_up_send_ends_its_connection` |
//! | an accept that succeeds as it is cancelled | `a_connection_accepted_as_listening_stops_is_served_or_closed` |
//! | a listener without descriptors, in a tight loop or dead | `accepting_pauses_when_descriptors_run_out`, `an_aborted_connection_does_not_pause_accepting` |
//! | more connections than there may be | `accepting_stops_at_the_bound_and_starts_again_below_it` |
//! | a pooled connection that ended, or spoke | `a_pooled_connection_that_was_disturbed_is_not_taken` |
//! | a wake between look and wait | `a_wake_is_never_lost`, `another_thread_wakes_a_worker` |
//!
//! Of the driver on io_uring alone, in `src/io/uring/tests.rs`: the queue's overflow, operations in flight when it is
//! dropped, lent buffers, deferred task work on the kernels that lose descriptors. Locked memory and descriptors at the
//! start: `src/io/host.rs`. Zero-copy sends, bundles, skipped completions, direct descriptors and kernel-side polling
//! are not used, so their hazards have no test.

#[path = "driver/chaos.rs"]
mod chaos;
#[path = "driver/kernel.rs"]
mod kernel;
#[path = "support/sim.rs"]
mod sim;
#[path = "driver/simulated.rs"]
mod simulated;

use std::cell::RefCell;
use std::rc::Rc;

use antiphon::io::buffer::Sizes;
use antiphon::io::op::{Piece, Pieces};

/// What tasks tell the test, in order.
#[derive(Clone, Default)]
struct Story(Rc<RefCell<Vec<String>>>);

impl Story {
    fn tell(&self, line: impl Into<String>) {
        self.0.borrow_mut().push(line.into());
    }

    /// What was told since this was last asked.
    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut())
    }
}

/// A send of one piece.
fn one(piece: Piece) -> Pieces {
    let mut pieces = Pieces::new();
    pieces.push(piece);
    pieces
}

fn text(text: &'static str) -> Pieces {
    one(Piece::Static(text.as_bytes()))
}

/// Few and small buffers, so that tests reach their bounds soon.
fn sizes(small: usize, large: usize, bytes: usize) -> Sizes {
    Sizes {
        small_buffers: small,
        small_buffer_bytes: bytes,
        small_lent: small,
        large_buffers: large,
        large_buffer_bytes: bytes,
        large_lent: large,
        ..Sizes::default()
    }
}
