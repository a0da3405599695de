//! The state directory: made at start, held by one instance at a time; and the file of decisions in it.
//!
//! What is in it, each with one author: `lock` and `operator.toml` (here; what they mean is
//! [`Decisions`]' to say), and a directory for each group (its journal's).
//!
//! A file that is there is whole: it is written beside, synced, and takes its name then. So anybody may read it at any
//! time.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::error::StartError;
use crate::config::{Decisions, Group};
use crate::limits::{CONFIG_BYTES_MAX, STATE_LOCK_LOOKS_MAX, STATE_LOCK_PAUSE};

/// The state directory, while it is ours.
#[derive(Debug)]
pub(super) struct Home {
    directory: PathBuf,
    /// The lock lasts as long as this file is open: the kernel takes it back from whoever dies.
    _lock: File,
}

/// Where the decisions are.
pub fn decisions_file(directory: &Path) -> PathBuf {
    directory.join("operator.toml")
}

/// Reads what was decided; none where there is no file. Takes no lock: `antiphon check` asks beside a running one.
///
/// # Errors
/// The file cannot be read, or not be understood.
pub fn read_decisions(directory: &Path) -> Result<Decisions, StartError> {
    let path = decisions_file(directory);
    let mut text = String::new();
    match File::open(&path).and_then(|file| file.take(CONFIG_BYTES_MAX).read_to_string(&mut text)) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Decisions::default());
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let what = "it is not UTF-8".to_owned();
            let hint =
                "antiphon did not write that: restore the file, or remove it (then nothing is decided)".to_owned();
            return Err(StartError::State { path, what, hint });
        }
        Err(error) => return Err(refused(&path, &error)),
    }
    Decisions::parse(&text, &path.to_string_lossy()).map_err(|errors| StartError::Decisions { path, errors })
}

/// Refuses a journal in the directory that is no configured group's. Whoever names a group otherwise leaves its journal
/// behind: the new one would take all children for identical, and children that lack changes would serve.
///
/// # Errors
/// There is one, or the directory cannot be read.
pub fn refuse_abandoned(directory: &Path, groups: &[Group]) -> Result<(), StartError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| refused(directory, &error))?,
    };
    for entry in entries {
        let entry = entry.map_err(|error| refused(directory, &error))?;
        let (path, name) = (entry.path(), entry.file_name());
        if groups.iter().any(|group| *group.name == *name) || !path.is_dir() {
            continue;
        }
        if has_segments(&path).map_err(|error| refused(&path, &error))? {
            let name = name.to_string_lossy();
            let what = format!("it is the journal of a group `{name}`, and no group of that name is configured");
            let hint = format!(
                "if a group was renamed, name it `{name}` again: a journal that begins anew takes all children for \
                 identical. If that is what they are now, or the group is gone, move the directory out of {}",
                directory.display()
            );
            return Err(StartError::State { path, what, hint });
        }
    }
    Ok(())
}

/// Does a directory look like a journal?
fn has_segments(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        if Path::new(&entry?.file_name()).extension().is_some_and(|extension| extension == "segment") {
            return Ok(true);
        }
    }
    Ok(false)
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
        Ok(Self { directory: directory.to_owned(), _lock: lock })
    }

    /// Makes the decisions durable: when this returns, they outlive a loss of power. Blocks.
    ///
    /// # Errors
    /// What the file system said; the file is as it was before, or as it was to be, and whole.
    pub(super) fn write_decisions(&self, decisions: &Decisions) -> io::Result<()> {
        let path = decisions_file(&self.directory);
        let beside = self.directory.join("operator.toml.new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(decisions.to_string().as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &path)?;
        sync_directory(&self.directory)
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
