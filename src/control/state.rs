//! The state directory: made at start, and held by one instance at a time.
//!
//! What is in it, each with one author: `lock` (here), and a directory for each group (its journal's).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::error::StartError;
use crate::limits::{STATE_LOCK_LOOKS_MAX, STATE_LOCK_PAUSE};

/// The state directory, while it is ours.
#[derive(Debug)]
pub(super) struct Home {
    /// The lock lasts as long as this file is open: the kernel takes it back from whoever dies.
    _lock: File,
}

impl Home {
    /// Makes the directory if only its last component is missing, and takes it for this process.
    ///
    /// # Errors
    /// It cannot be made or written, or another instance has it.
    pub(super) async fn open(directory: &Path) -> Result<Self, StartError> {
        make(directory).map_err(|error| refused(directory, &error))?;
        let path = directory.join("lock");
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut lock = opened.map_err(|error| refused(&path, &error))?;
        let mut looks = 0;
        while let Err(errno) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if errno != rustix::io::Errno::WOULDBLOCK {
                return Err(refused(&path, &errno.into()));
            }
            if looks == STATE_LOCK_LOOKS_MAX {
                return Err(taken(directory, &path));
            }
            looks += 1;
            tokio::time::sleep(STATE_LOCK_PAUSE).await;
        }
        // For whoever finds the lock taken; a full disk is no reason to refuse.
        _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        Ok(Self { _lock: lock })
    }
}

/// Makes the directory where it is missing: the last component only, for a slip in the path is not to leave a tree
/// behind.
fn make(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => sync_directory(directory.parent().unwrap_or(directory)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::metadata(directory)?.is_dir() {
                Ok(())
            } else {
                Err(io::ErrorKind::NotADirectory.into())
            }
        }
        Err(error) => Err(error),
    }
}

/// Makes names in a directory durable. One that we may write to but not read cannot be synced, and need not be refused.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    match File::open(directory) {
        Ok(directory) => directory.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

fn taken(directory: &Path, lock: &Path) -> StartError {
    let holder = fs::read_to_string(lock).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let holder = holder.map_or_else(String::new, |process| format!(" (process {process})"));
    StartError::State {
        path: PathBuf::from(directory),
        what: format!("another antiphon{holder} uses it"),
        hint: "stop that one, or give this one a directory of its own: two that both number changes would tear the \
               children apart"
            .to_owned(),
    }
}

fn refused(path: &Path, error: &io::Error) -> StartError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "its parent directory does not exist: make it, or change [state] directory",
        io::ErrorKind::NotADirectory => "that, or a part of the path, is no directory: change [state] directory",
        io::ErrorKind::PermissionDenied => {
            "it must be writable for the user antiphon runs as (StateDirectory= in the unit file makes it)"
        }
        io::ErrorKind::ReadOnlyFilesystem => "it must stand where files can be written: change [state] directory",
        io::ErrorKind::StorageFull => "make room on that file system, or change [state] directory",
        _ => "make it readable and writable, or change [state] directory",
    };
    StartError::State { path: path.to_owned(), what: error.to_string(), hint: hint.to_owned() }
}
