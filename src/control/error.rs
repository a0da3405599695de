//! Why a front does not start: what was found, what is needed, what to change.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::config::ConfigErrors;
use crate::journal::segment::OpenError;

/// A refusal at start. Its text is for the operator, and ends with the next thing to try.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener's address cannot be had.
    #[error("cannot listen on {address}: {error}\n  {hint}")]
    Bind {
        /// The `[[listen]]` or `[admin]` address.
        address: SocketAddr,
        /// What the kernel said.
        error: io::Error,
        /// What to do.
        hint: String,
    },
    /// Descriptors or locked memory do not suffice.
    #[error("{0}")]
    Limits(crate::io::host::TooFewFds),
    /// The driver that the configuration asks for cannot be opened.
    #[error("{0}")]
    Driver(String),
    /// A thread or runtime could not be made.
    #[error("cannot start a thread: {0}\n  look at the limit of processes: ulimit -u, or TasksMax in the unit file")]
    Thread(io::Error),
    /// The admin socket that the configuration names cannot be had.
    #[error("cannot listen on the admin socket {}: {error}\n  {hint}", path.display())]
    AdminSocket {
        /// `[admin] socket`.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
        /// What to do.
        hint: String,
    },
    /// The state directory cannot be used.
    #[error("[state] directory {}: {what}\n  {hint}", path.display())]
    State {
        /// `[state] directory`, or a file in it.
        path: PathBuf,
        /// What was found.
        what: String,
        /// What to do.
        hint: String,
    },
    /// What was decided before cannot be understood.
    #[error(
        "what was decided before cannot be understood\n\n{errors}\n\n  mend {0}, or remove it: then nothing is decided, \
         and the configuration alone holds", path.display()
    )]
    Decisions {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        errors: ConfigErrors,
    },
    /// A group's journal cannot be used.
    #[error("the journal of group {group}: {error}")]
    Journal {
        /// The group.
        group: Box<str>,
        /// What was found, and what to do.
        error: OpenError,
    },
    /// A worker ended although nobody stopped it.
    #[error("a worker ended: {0}\n  this is a fault of antiphon; please report it with the lines above")]
    Worker(io::Error),
}

impl StartError {
    /// Explains why an address cannot be listened on.
    pub(crate) fn bind(address: SocketAddr, error: io::Error) -> Self {
        let port = address.port();
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "another process listens there: `ss -ltnp 'sport = :{port}'` names it; stop it, or change `address`"
            ),
            io::ErrorKind::PermissionDenied => format!(
                "ports below 1024 need CAP_NET_BIND_SERVICE (AmbientCapabilities= in the unit file); port is {port}"
            ),
            io::ErrorKind::AddrNotAvailable => {
                "no interface of this host has this address: `ip address` lists them; change `address`".to_owned()
            }
            _ => "change `address`".to_owned(),
        };
        Self::Bind { address, error, hint }
    }

    /// Can a line of the configuration cure it, or only the operator? Then the exit code is 78 (EX_CONFIG): to try again
    /// is no use.
    #[must_use]
    pub const fn is_configuration(&self) -> bool {
        // What the system said of a file may pass, and so does another process.
        if let Self::Journal { error, .. } = self {
            return !matches!(error, OpenError::Io { .. } | OpenError::Locked { .. });
        }
        matches!(
            self,
            Self::Bind { .. }
                | Self::Limits(_)
                | Self::Driver(_)
                | Self::AdminSocket { .. }
                | Self::State { .. }
                | Self::Decisions { .. }
        )
    }
}
