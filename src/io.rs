//! The only place that knows the kernel: operations go in, completions come out.
//!
//! [`op`] is the seam. Three drivers carry operations out: [`uring`], [`epoll`] where io_uring is forbidden, and a
//! scripted one in the tests. Above the seam stand the executor ([`exec`]) and the timer wheel ([`wheel`]), which are
//! the same for all three; [`buffer`] is the memory that both sides share. [`host`] says what the host allows.
//!
//! Nothing here knows HTTP, children or changes.

use std::error::Error;
use std::fmt;
use std::io;
use std::rc::Rc;

use self::buffer::{Buffers, Sizes};
use self::epoll::EpollDriver;
use self::host::Unavailable;
use self::op::Driver;

pub mod buffer;
pub mod epoll;
pub mod exec;
pub mod host;
pub mod op;
pub mod slab;
pub mod uring;
pub mod wheel;

/// Which driver to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverChoice {
    /// io_uring; epoll where it cannot be had, and then the reason is told.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// epoll.
    Epoll,
}

/// A driver and its buffers, for the thread that opened it.
pub struct Opened {
    /// The driver.
    pub driver: Box<dyn Driver>,
    /// The buffers it receives into.
    pub buffers: Rc<Buffers>,
    /// How it was set up, for an operator: `single issuer, deferred task work`.
    pub detail: String,
    /// Why this is epoll, where io_uring was wanted: cause and cure, in a sentence.
    pub fallback_reason: Option<String>,
}

/// Why no driver could be opened. Its text names cause and cure.
#[derive(Debug)]
pub enum OpenError {
    /// No address space for the buffers.
    Buffers(io::Error),
    /// io_uring was demanded and cannot be used.
    Uring(Unavailable),
    /// No epoll instance.
    Epoll(io::Error),
}

/// Opens a driver with buffers of its own for the calling thread.
///
/// Waits up to a second and a half where locked memory is short: that of an earlier process comes back late.
///
/// # Errors
/// There is no such driver on this host.
pub fn open(choice: DriverChoice, sizes: Sizes) -> Result<Opened, OpenError> {
    let buffers = Buffers::new(sizes).map_err(OpenError::Buffers)?;
    let fallback_reason = match choice {
        DriverChoice::Epoll => None,
        DriverChoice::Auto | DriverChoice::Uring => match host::open_uring(&buffers) {
            Ok(driver) => {
                let detail = driver.setup().to_string();
                return Ok(Opened { driver: Box::new(driver), buffers, detail, fallback_reason: None });
            }
            Err(cause) if choice == DriverChoice::Uring => return Err(OpenError::Uring(cause)),
            Err(cause) => Some(cause.to_string()),
        },
    };
    let driver = EpollDriver::new(Rc::clone(&buffers)).map_err(OpenError::Epoll)?;
    Ok(Opened { driver: Box::new(driver), buffers, detail: "level-triggered readiness".into(), fallback_reason })
}

/// Whether io_uring can be used on this host and, if not, why and what to do: one line, for `--version`.
#[must_use]
pub fn describe() -> String {
    match host::uring_available() {
        Ok(facts) => format!("io_uring: usable (Linux {}, {})", facts.release, facts.setup),
        Err(cause) => format!("io_uring: not usable: {cause}; epoll serves instead"),
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("driver", &self.driver.name())
            .field("detail", &self.detail)
            .field("fallback_reason", &self.fallback_reason)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffers(error) => write!(
                f,
                "no address space for a worker's buffers ({error}): look at RLIMIT_AS and at the memory limit of the \
                 cgroup, or run fewer workers"
            ),
            Self::Uring(cause) => write!(f, "{cause}; or let `[workers] driver = \"auto\"` fall back to epoll"),
            Self::Epoll(error) => write!(f, "no epoll instance ({error}): look at RLIMIT_NOFILE and fs.file-max"),
        }
    }
}

impl Error for OpenError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_opens_or_says_why_not() {
        for choice in [DriverChoice::Auto, DriverChoice::Uring, DriverChoice::Epoll] {
            match open(choice, Sizes::default()) {
                Ok(mut opened) => {
                    assert_eq!(
                        opened.driver.name() == "epoll",
                        choice == DriverChoice::Epoll || opened.fallback_reason.is_some()
                    );
                    opened.driver.turn(Some(std::time::Duration::ZERO), &mut Vec::new()).unwrap();
                }
                Err(refusal) => {
                    assert!(choice == DriverChoice::Uring, "{refusal}");
                    println!("SKIP: {refusal}");
                }
            }
        }
    }
}
