//! What the host allows, and what to tell an operator where that is too little.
//!
//! Every refusal names what was found, what is needed and the line to change. Judging is pure (`judge`,
//! [`needed_fds`]); only the functions at the top of each part ask the kernel.

use std::error::Error;
use std::fmt;
use std::fs;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::io::buffer::Buffers;
use crate::io::uring::{self, Setup, SetupError, UringDriver};
use crate::limits::URING_ENTRIES;

// === io_uring ===

/// What an available io_uring is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UringFacts {
    /// The kernel's release, as `uname -r` says it.
    pub release: String,
    /// How instances are set up.
    pub setup: Setup,
}

/// Why io_uring cannot be used. Its text is for an operator: cause, figures and cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// By `kernel.io_uring_disabled`.
    SwitchedOff {
        /// 1: allowed to a group only; 2: to nobody.
        setting: u32,
    },
    /// By a seccomp profile (or another security module), as container engines do unasked.
    Seccomp {
        /// What it answered.
        errno: Errno,
    },
    /// The kernel does not have it, or lacks a part.
    KernelTooOld {
        /// The kernel's release.
        release: String,
        /// What is missing.
        missing: String,
    },
    /// `RLIMIT_MEMLOCK` is too small, or still charged with what an earlier process held.
    LockedMemory {
        /// The limit. `None` where there is none; then the memory itself is missing.
        limit_bytes: Option<u64>,
        /// What one worker takes; half of it would still do.
        needed_bytes: u64,
    },
    /// `RLIMIT_NOFILE`, or the host's table of files, is used up.
    Descriptors {
        /// The soft limit of this process.
        limit: Option<u64>,
    },
    /// Something that we have no advice for.
    Other {
        /// What the kernel answered.
        errno: Errno,
    },
}

/// Whether io_uring works here, asked by setting up a small instance. For any thread; costs a few system calls.
///
/// # Errors
/// It does not.
pub fn uring_available() -> Result<UringFacts, Unavailable> {
    let host = Host::read();
    match uring::probe(Setup::candidates(&host.release)) {
        Ok(setup) => Ok(UringFacts { release: host.release, setup }),
        Err(refusal) => Err(judge(refusal, &host)),
    }
}

/// A driver for the calling thread, as large as locked memory allows. The memory of a process that has just ended
/// comes back late, so a refusal for want of memory is waited out for a second and a half.
///
/// # Errors
/// io_uring cannot be used.
#[expect(clippy::disallowed_methods, reason = "at start, before anything is served: memory comes back with time only")]
pub fn open_uring(buffers: &Rc<Buffers>) -> Result<UringDriver, Unavailable> {
    let host = Host::read();
    let candidates = Setup::candidates(&host.release);
    let mut refusal = SetupError::Refused(Errno::NOMEM);
    for pause_ms in RETRY_PAUSES_MS {
        thread::sleep(Duration::from_millis(pause_ms));
        for entries in ENTRIES_TRIED {
            match UringDriver::new(Rc::clone(buffers), entries, candidates) {
                Ok(driver) => return Ok(driver),
                Err(SetupError::Refused(Errno::NOMEM)) => {}
                Err(other) => return Err(judge(other, &host)),
            }
            refusal = SetupError::Refused(Errno::NOMEM);
        }
    }
    Err(judge(refusal, &host))
}

/// Locked memory that the instances of so many workers are charged for, where there is a limit, in octets.
#[must_use]
pub fn locked_bytes(workers: u64) -> u64 {
    workers * uring::locked_bytes(URING_ENTRIES)
}

/// What decides between the causes of one error number.
#[derive(Clone, Debug, Default)]
struct Host {
    release: String,
    /// `kernel.io_uring_disabled`; `None` before Linux 6.6, and where io_uring is not built in.
    disabled: Option<u32>,
    /// A seccomp filter is in force.
    filtered: bool,
    /// The soft limits.
    locked_bytes_max: Option<u64>,
    fds_max: Option<u64>,
}

impl Host {
    fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self {
            release: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            disabled: text("/proc/sys/kernel/io_uring_disabled").trim().parse().ok(),
            filtered: text("/proc/self/status")
                .lines()
                .any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2")),
            locked_bytes_max: getrlimit(Resource::Memlock).current,
            fds_max: getrlimit(Resource::Nofile).current,
        }
    }
}

/// The cause behind a refusal.
fn judge(refusal: SetupError, host: &Host) -> Unavailable {
    let too_old =
        |missing: &str| Unavailable::KernelTooOld { release: host.release.clone(), missing: missing.to_owned() };
    let errno = match refusal {
        SetupError::Missing(what) => return too_old(what),
        SetupError::Refused(errno) => errno,
    };
    match (errno, host.disabled) {
        (Errno::PERM, Some(setting @ 1..)) => Unavailable::SwitchedOff { setting },
        (Errno::PERM | Errno::ACCESS, _) => Unavailable::Seccomp { errno },
        // The setting exists, so io_uring does, too.
        (Errno::NOSYS, Some(_)) => Unavailable::Seccomp { errno },
        (Errno::NOSYS, None) if host.filtered => Unavailable::Seccomp { errno },
        (Errno::NOSYS, None) => too_old("io_uring"),
        (Errno::INVAL, _) => too_old("a part of io_uring"),
        (Errno::NOMEM, _) => Unavailable::LockedMemory {
            limit_bytes: host.locked_bytes_max,
            needed_bytes: uring::locked_bytes(URING_ENTRIES),
        },
        (Errno::MFILE | Errno::NFILE, _) => Unavailable::Descriptors { limit: host.fds_max },
        (errno, _) => Unavailable::Other { errno },
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SwitchedOff { setting: 1 } => f.write_str(
                "io_uring is kept for one group on this host (kernel.io_uring_disabled = 1): set it to 0 in \
                 /etc/sysctl.d/, or set kernel.io_uring_group to a group of this user",
            ),
            Self::SwitchedOff { setting } => write!(
                f,
                "io_uring is switched off on this host (kernel.io_uring_disabled = {setting}): set it to 0 in \
                 /etc/sysctl.d/ (at once: sysctl -w kernel.io_uring_disabled=0)"
            ),
            Self::Seccomp { errno } => write!(
                f,
                "io_uring is blocked by a seccomp profile, as container engines do by default (io_uring_setup: \
                 {errno}): allow io_uring_setup, io_uring_enter and io_uring_register in it (Docker: --security-opt \
                 seccomp=PROFILE; Kubernetes: seccompProfile; systemd: SystemCallFilter=)"
            ),
            Self::KernelTooOld { release, missing } => {
                write!(f, "this kernel ({release}) lacks {missing}: Linux 6.1 or later is needed")
            }
            Self::LockedMemory { limit_bytes: Some(limit), needed_bytes } => write!(
                f,
                "locked memory is limited to {} KiB for all processes of this user together (RLIMIT_MEMLOCK), and \
                 each worker takes {} KiB: allow that for each (LimitMEMLOCK= in the unit file, memlock in \
                 /etc/security/limits.conf, --ulimit memlock= for a container); what a process held that has just \
                 ended comes back a second late",
                limit / 1024,
                needed_bytes.div_ceil(1024)
            ),
            Self::LockedMemory { limit_bytes: None, needed_bytes } => write!(
                f,
                "the host has no {} KiB of memory left for a worker's io_uring: look at the memory limit of its cgroup",
                needed_bytes.div_ceil(1024)
            ),
            Self::Descriptors { limit: Some(limit) } => write!(
                f,
                "no file descriptor is left for a worker's io_uring (RLIMIT_NOFILE is {limit}): set LimitNOFILE= in \
                 the unit file, or nofile in /etc/security/limits.conf"
            ),
            Self::Descriptors { limit: None } => {
                f.write_str("no file descriptor is left for a worker's io_uring on this host: raise fs.file-max")
            }
            Self::Other { errno } => write!(f, "io_uring cannot be set up: {errno}"),
        }
    }
}

impl Error for Unavailable {}

// === file descriptors ===

/// Fewer descriptors are allowed than are needed. Its text is for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFewFds {
    /// The hard limit, which only root may raise.
    pub limit: u64,
    /// The descriptors needed.
    pub needed: u64,
}

/// Raises the soft limit on descriptors to `needed` where it is below. Returns the limit then in force.
///
/// # Errors
/// The hard limit is lower.
pub fn ensure_fds(needed: u64) -> Result<u64, TooFewFds> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    match to_raise(current, maximum, needed)? {
        None => Ok(current.unwrap_or(u64::MAX)),
        Some(raised) => match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }) {
            Ok(()) => Ok(raised),
            // A security module may forbid what the numbers allow.
            Err(_) => Err(TooFewFds { limit: current.unwrap_or(u64::MAX), needed }),
        },
    }
}

/// Descriptors that the process needs: `connections` of all workers, clients and children together, and what each
/// worker and the process have besides.
#[must_use]
pub const fn needed_fds(workers: u64, listeners: u64, connections: u64) -> u64 {
    FDS_OF_PROCESS + workers * (FDS_OF_WORKER + listeners) + connections
}

/// How many connections `limit` descriptors allow, the reverse of [`needed_fds`].
#[must_use]
pub const fn connections_within(limit: u64, workers: u64, listeners: u64) -> u64 {
    limit.saturating_sub(needed_fds(workers, listeners, 0))
}

/// The soft limit to set, if it must be raised. `None` in a limit: there is none.
fn to_raise(soft: Option<u64>, hard: Option<u64>, needed: u64) -> Result<Option<u64>, TooFewFds> {
    match (soft, hard) {
        (None, _) => Ok(None),
        (Some(soft), _) if soft >= needed => Ok(None),
        (_, Some(hard)) if hard < needed => Err(TooFewFds { limit: hard, needed }),
        (Some(_), _) => Ok(Some(needed)),
    }
}

impl fmt::Display for TooFewFds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, needed } = self;
        write!(
            f,
            "{needed} file descriptors are needed and {limit} allowed (RLIMIT_NOFILE): set LimitNOFILE={needed} in the \
             unit file, nofile in /etc/security/limits.conf, or --ulimit nofile={needed} for a container; or allow \
             fewer connections ([limits] connections_max)"
        )
    }
}

impl Error for TooFewFds {}

// === constants ===

/// Sizes of an instance, from the one we want to the least that is of use.
const ENTRIES_TRIED: [u32; 4] = [URING_ENTRIES, URING_ENTRIES / 2, URING_ENTRIES / 4, URING_ENTRIES / 8];
/// Before each round of tries. Measured: none of the memory is back at once, all of it after a second.
const RETRY_PAUSES_MS: [u64; 5] = [0, 100, 200, 400, 800];
/// Standard streams, log, admin sockets and their clients, the control thread's instance and timers.
const FDS_OF_PROCESS: u64 = 128;
/// The driver, the eventfd that wakes it, and both ends of a few pipes.
const FDS_OF_WORKER: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn host(disabled: Option<u32>, filtered: bool) -> Host {
        Host {
            release: "6.1.0-13-amd64".into(),
            disabled,
            filtered,
            locked_bytes_max: Some(65_536),
            fds_max: Some(1024),
        }
    }

    #[test]
    fn each_cause_is_told_apart_and_says_what_to_change() {
        let refused = SetupError::Refused;
        for (refusal, disabled, filtered, says) in [
            (refused(Errno::PERM), Some(2), false, "kernel.io_uring_disabled = 2"),
            (refused(Errno::PERM), Some(1), true, "kernel.io_uring_group"),
            (refused(Errno::PERM), Some(0), false, "seccomp=PROFILE"),
            (refused(Errno::PERM), None, true, "seccomp=PROFILE"),
            (refused(Errno::NOSYS), Some(0), false, "seccomp=PROFILE"),
            (refused(Errno::NOSYS), None, true, "seccomp=PROFILE"),
            (refused(Errno::NOSYS), None, false, "(6.1.0-13-amd64) lacks io_uring: Linux 6.1"),
            (refused(Errno::INVAL), None, false, "Linux 6.1 or later"),
            (SetupError::Missing("sendmsg"), Some(0), false, "lacks sendmsg"),
            (refused(Errno::NOMEM), Some(0), false, "limited to 64 KiB"),
            (refused(Errno::NOMEM), Some(0), false, "LimitMEMLOCK="),
            (refused(Errno::MFILE), Some(0), false, "RLIMIT_NOFILE is 1024"),
            (refused(Errno::IO), Some(0), false, "cannot be set up"),
        ] {
            let text = judge(refusal, &host(disabled, filtered)).to_string();
            assert!(text.contains(says), "{refusal:?}, {disabled:?}, {filtered}: {text}");
        }
    }

    #[test]
    fn the_soft_limit_is_raised_as_far_as_the_hard_one() {
        assert_eq!(to_raise(Some(1024), Some(4096), 1000), Ok(None));
        assert_eq!(to_raise(Some(1024), Some(4096), 4096), Ok(Some(4096)));
        assert_eq!(to_raise(Some(1024), None, 5000), Ok(Some(5000)));
        assert_eq!(to_raise(None, None, 5000), Ok(None));
        let refusal = to_raise(Some(1024), Some(4096), 4097).unwrap_err();
        assert_eq!(refusal, TooFewFds { limit: 4096, needed: 4097 });
        assert!(refusal.to_string().contains("LimitNOFILE=4097"));
    }

    #[test]
    fn connections_and_descriptors_are_each_others_reverse() {
        let needed = needed_fds(4, 2, 10_000);
        assert_eq!(connections_within(needed, 4, 2), 10_000);
        assert_eq!(connections_within(10, 4, 2), 0);
    }

    #[test]
    fn this_host_answers_one_way_or_the_other() {
        match uring_available() {
            Ok(facts) => assert!(!facts.release.is_empty()),
            Err(cause) => println!("SKIP: {cause}"),
        }
        assert!(ensure_fds(8).is_ok());
    }
}
