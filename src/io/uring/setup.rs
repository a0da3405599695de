//! How an io_uring instance is set up, and whether the kernel behind it can do all that we need.

use std::fmt;
use std::io;

use io_uring::{IoUring, Probe, opcode};
use rustix::io::Errno;

use crate::limits::URING_COMPLETIONS_PER_ENTRY;

/// How the instance runs its completions, from best to plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// `SINGLE_ISSUER` and `DEFER_TASKRUN`: they run inside our own `enter` (Linux 6.1).
    Deferred,
    /// `COOP_TASKRUN`: they run when we enter the kernel for any reason (5.19).
    Cooperative,
    /// They interrupt our own code.
    Plain,
}

/// Why there is no instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupError {
    /// The kernel said no.
    Refused(Errno),
    /// The kernel has io_uring, but not this.
    Missing(&'static str),
}

// === impl Setup ===

impl Setup {
    /// What to try on a kernel of this release (`6.1.0-13-amd64`), in this order.
    ///
    /// `DEFER_TASKRUN` is left out on 6.6 and 6.7: a multishot accept could complete with a descriptor that does not
    /// exist (liburing 1062). Measured cost of leaving it out: none.
    #[must_use]
    pub fn candidates(kernel_release: &str) -> &'static [Self] {
        const ALL: &[Setup] = &[Setup::Deferred, Setup::Cooperative, Setup::Plain];
        let broken = ["6.6", "6.7"].iter().any(|version| {
            let rest = kernel_release.strip_prefix(version);
            rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
        });
        if broken { &ALL[1..] } else { ALL }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deferred => "single issuer, deferred task work",
            Self::Cooperative => "cooperative task work",
            Self::Plain => "plain",
        })
    }
}

/// Whether an instance could be had on the calling thread, and how it would be set up.
///
/// # Errors
/// As [`UringDriver::new`](super::UringDriver::new); locked memory may suffice for this small one and not for that.
pub fn probe(candidates: &[Setup]) -> Result<Setup, SetupError> {
    build(PROBE_ENTRIES, candidates).map(|(_, setup)| setup)
}

/// Locked memory that one instance is charged for where there is a limit: entries, completions, and both lending
/// rings of at most 32,768 buffers of 16 octets.
#[must_use]
pub const fn locked_bytes(entries: u32) -> u64 {
    let entries = entries as u64;
    let completions = entries * URING_COMPLETIONS_PER_ENTRY as u64;
    entries * (64 + 4) + completions * 16 + 64 * 1024
}

/// An instance that can do all that we need.
pub(super) fn build(entries: u32, candidates: &[Setup]) -> Result<(IoUring, Setup), SetupError> {
    let mut refusal = SetupError::Missing("any way to set it up");
    for &setup in candidates {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp().setup_submit_all();
        builder.setup_cqsize(entries * URING_COMPLETIONS_PER_ENTRY);
        match setup {
            Setup::Deferred => builder.setup_single_issuer().setup_defer_taskrun(),
            Setup::Cooperative => builder.setup_coop_taskrun(),
            Setup::Plain => &mut builder,
        };
        match builder.build(entries) {
            Ok(ring) => return missing(&ring)?.map_or(Ok((ring, setup)), |what| Err(SetupError::Missing(what))),
            Err(error) => refusal = refused(error),
        }
        // An unknown flag is EINVAL; nothing else gets better with fewer flags.
        if refusal != SetupError::Refused(Errno::INVAL) {
            break;
        }
    }
    Err(refusal)
}

/// The first thing that we need and the kernel behind `ring` lacks. Asked for by what it can do, not by its version:
/// distributions carry io_uring back into older kernels.
fn missing(ring: &IoUring) -> Result<Option<&'static str>, SetupError> {
    if !ring.params().is_feature_ext_arg() {
        return Ok(Some("time-outs on io_uring_enter (Linux 5.11)"));
    }
    if !ring.params().is_feature_nodrop() {
        return Ok(Some("completions that are never dropped (Linux 5.5)"));
    }
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(refused)?;
    let needed = [
        (opcode::AcceptMulti::CODE, "accept"),
        (opcode::RecvMulti::CODE, "receive"),
        (opcode::Send::CODE, "send"),
        (opcode::SendMsg::CODE, "sendmsg"),
        (opcode::Connect::CODE, "connect"),
        (opcode::PollAdd::CODE, "poll"),
        (opcode::AsyncCancel::CODE, "cancel"),
        // Not used: it came in the version after multishot receive and buffer rings, which cannot be asked for.
        (opcode::SendMsgZc::CODE, "multishot receive as in Linux 6.1"),
    ];
    Ok(needed.iter().find(|(code, _)| !probe.is_supported(*code)).map(|(_, what)| *what))
}

/// What a failed call means.
pub(super) fn refused(error: io::Error) -> SetupError {
    SetupError::Refused(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Of an instance that only looks.
const PROBE_ENTRIES: u32 = 4;
