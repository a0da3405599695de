//! What a journal asks of the world: files in one directory, a wall clock, chance, and which boot this is.
//!
//! [`Directory`](directory::Directory) is the real one. The simulated one fails as told, and forgets what was not synced.

pub mod directory;
#[cfg(test)]
pub(crate) mod simulated;

use std::io;
use std::sync::Arc;

/// One directory. Names have no path.
pub trait Disk: Send + Sync {
    /// Makes a file that must not be there yet.
    ///
    /// # Errors
    /// As the system says.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Opens a file that is there, to read and write it.
    ///
    /// # Errors
    /// As the system says.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Gives a file another name; whatever had it is gone.
    ///
    /// # Errors
    /// As the system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Takes a name away. Whoever has the file open goes on reading it.
    ///
    /// # Errors
    /// As the system says.
    fn unlink(&self, name: &str) -> io::Result<()>;

    /// All names, in any order.
    ///
    /// # Errors
    /// As the system says.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes names durable.
    ///
    /// # Errors
    /// As the system says.
    fn sync_dir(&self) -> io::Result<()>;

    /// Keeps others out, until what comes back is dropped.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another process has it.
    fn lock(&self) -> io::Result<Box<dyn Send>>;

    /// The name with its directory, for messages.
    fn path(&self, name: &str) -> String;

    /// Milliseconds since 1970.
    fn unix_ms(&self) -> u64;

    /// Any number.
    fn random(&self) -> u64;

    /// Another after each start of the system; zeros if it cannot be told.
    fn boot_id(&self) -> [u8; 16];
}

/// An open file.
pub trait File: Send + Sync {
    /// Reads what is there, at most `into.len()` octets; 0 at the end.
    ///
    /// # Errors
    /// As the system says.
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize>;

    /// Writes, once; how many octets were taken.
    ///
    /// # Errors
    /// As the system says. Never [`io::ErrorKind::Interrupted`].
    fn write_at(&self, octets: &[u8], position: u64) -> io::Result<usize>;

    /// Makes its octets, and its size, durable.
    ///
    /// # Errors
    /// What was written since the last sync may be lost. Asking again proves nothing.
    fn sync_data(&self) -> io::Result<()>;

    /// Has the blocks for `bytes` octets, which are then its size; what is new reads as zeros.
    ///
    /// # Errors
    /// As the system says; [`io::ErrorKind::StorageFull`] where the space is missing.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// Octets of it.
    ///
    /// # Errors
    /// As the system says.
    fn bytes(&self) -> io::Result<u64>;
}

/// Reads until `into` is full or the file ends; how many octets there were.
///
/// # Errors
/// As the system says.
pub fn read_full(file: &dyn File, into: &mut [u8], position: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], position + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Writes all of it, at once; less than all is an error.
///
/// # Errors
/// As the system says, or [`io::ErrorKind::WriteZero`].
pub fn write_whole(file: &dyn File, octets: &[u8], position: u64) -> io::Result<()> {
    let written = file.write_at(octets, position)?;
    if written == octets.len() {
        return Ok(());
    }
    let what = format!("only {written} of {} octets were written", octets.len());
    Err(io::Error::new(io::ErrorKind::WriteZero, what))
}

/// Writes zeros over a range, piece by piece.
///
/// # Errors
/// As [`write_whole`].
pub fn zero(file: &dyn File, from: u64, to: u64) -> io::Result<()> {
    const PIECE: usize = 256 * 1024;
    let zeros = vec![0; PIECE.min(usize::try_from(to.saturating_sub(from)).unwrap_or(PIECE))];
    let mut at = from;
    while at < to {
        let length = zeros.len().min(usize::try_from(to - at).unwrap_or(zeros.len()));
        write_whole(file, &zeros[..length], at)?;
        at += length as u64;
    }
    Ok(())
}

/// Reads a range and writes the same again: after a failed sync the system may hold it for written.
///
/// # Errors
/// As [`write_whole`].
pub fn rewrite(file: &dyn File, from: u64, to: u64) -> io::Result<()> {
    const PIECE: u64 = 1024 * 1024;
    let mut at = from;
    while at < to {
        let mut octets = vec![0; PIECE.min(to - at) as usize];
        if read_full(file, &mut octets, at)? < octets.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        write_whole(file, &octets, at)?;
        at += octets.len() as u64;
    }
    Ok(())
}
