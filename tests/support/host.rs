//! Who may rely on the host as it is, across all test processes of this machine.
//!
//! One test switches io_uring off for the whole host. It does so [`alone`]; whatever starts the proxy holds a
//! [`shared`] lock meanwhile. The lock is on a file, and the kernel gives it back however its holder ends.

use std::fs::{File, OpenOptions};

/// Held while the host must stay as it is. Dropping it gives it back.
#[derive(Debug)]
pub struct Host {
    _file: Option<File>,
}

/// Waits until nobody changes the host.
pub fn shared() -> Host {
    Host { _file: open().filter(|file| file.lock_shared().is_ok()) }
}

/// Waits until nobody else relies on the host.
pub fn alone() -> Host {
    Host { _file: open().filter(|file| file.lock().is_ok()) }
}

/// `None` where another user has made the file first: then the lock is theirs, and we do without.
fn open() -> Option<File> {
    let path = std::env::temp_dir().join("antiphon-test-host.lock");
    OpenOptions::new().create(true).truncate(false).write(true).open(path).ok()
}
