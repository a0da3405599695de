//! The real disk: one directory, through the standard library where it has a call and rustix where not.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

use super::{Disk, File};
use crate::time::{now, unix_ms};

/// A directory of our own.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
}

/// A file of it.
struct Open(fs::File);

impl Directory {
    /// The directory, which is made (mode 0700) if it is not there, with those above it.
    ///
    /// # Errors
    /// As the system says.
    pub fn make(path: PathBuf) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        if let Some(parent) = path.parent() {
            fs::File::open(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?.sync_all()?;
        }
        Ok(Self { path })
    }

    /// A directory that is there.
    ///
    /// # Errors
    /// As the system says.
    pub fn existing(path: PathBuf) -> io::Result<Self> {
        fs::read_dir(&path)?;
        Ok(Self { path })
    }

    /// What kind of file system it is on, where that is one that forgets or does as it likes with a sync.
    ///
    /// # Errors
    /// As the system says.
    pub fn doubtful_file_system(&self) -> io::Result<Option<&'static str>> {
        let kind = rustix::fs::statfs(&self.path)?.f_type as u64 & 0xffff_ffff;
        Ok(DOUBTFUL.iter().find(|(magic, _)| *magic == kind).map(|(_, name)| *name))
    }

    fn options() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        options
    }
}

impl Disk for Directory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(Open(Self::options().create_new(true).open(self.path.join(name))?)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(Open(Self::options().open(self.path.join(name))?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn sync_dir(&self) -> io::Result<()> {
        fs::File::open(&self.path)?.sync_all()
    }

    fn lock(&self) -> io::Result<Box<dyn Send>> {
        let file = Self::options().create(true).truncate(false).open(self.path.join("lock"))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(file))
    }

    fn path(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    fn unix_ms(&self) -> u64 {
        unix_ms()
    }

    fn random(&self) -> u64 {
        let mut octets = [0; 8];
        // Eight octets come whole, and the call fails only where the kernel has none; then the clocks have to do.
        match rustix::rand::getrandom(&mut octets, GetRandomFlags::empty()) {
            Ok(_) => u64::from_le_bytes(octets),
            Err(_) => unix_ms().rotate_left(32) ^ now().as_nanos(),
        }
    }

    fn boot_id(&self) -> [u8; 16] {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.trim().chars().filter(|digit| *digit != '-').collect();
        u128::from_str_radix(&digits, 16).unwrap_or_default().to_be_bytes()
    }
}

impl File for Open {
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        uninterrupted(|| self.0.read_at(into, position))
    }

    fn write_at(&self, octets: &[u8], position: u64) -> io::Result<usize> {
        uninterrupted(|| self.0.write_at(octets, position))
    }

    fn sync_data(&self) -> io::Result<()> {
        // Once. After an interruption nobody knows what a second one would prove; Linux does not interrupt it.
        Ok(rustix::fs::fdatasync(&self.0)?)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP) => self.0.set_len(bytes),
            done => Ok(done?),
        }
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

/// A call that a signal has ended before it did anything is made again.
fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// By statfs(2): memory, layers over something else, and files that another machine keeps.
const DOUBTFUL: &[(u64, &str)] = &[
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlay"),
    (0x0000_6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
    (0x7461_636f, "ocfs2"),
    (0x0116_1970, "gfs2"),
];
