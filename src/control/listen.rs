//! Where the admin side listens: a unix socket that only its owner may use, and, where configured, a TCP address.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::process::umask;
use tokio::net::{TcpListener, UnixListener};

use super::admin::{Desk, router};
use super::error::StartError;
use crate::config;

/// Bound, and not yet served. Dropping it takes the socket's file away.
pub(super) struct Admin {
    unix: Option<(UnixListener, PathBuf)>,
    tcp: Option<TcpListener>,
    /// The file of the socket, once it is served.
    file: Option<PathBuf>,
}

impl Admin {
    /// Binds both.
    pub(super) fn bind(config: &config::Admin) -> Result<AdminBound, StartError> {
        let unix = match bind_unix(&config.socket) {
            Ok(listener) => Some((listener, config.socket.clone())),
            // A first run as an ordinary user must work without a directory in /run.
            Err(error) if !config.socket_named && error.kind() != io::ErrorKind::AddrInUse => {
                tracing::warn!(
                    path = %config.socket.display(), %error,
                    "no admin socket: `antiphon status` and `antiphon child` need one; name it with [admin] socket"
                );
                None
            }
            Err(error) => return Err(refused(&config.socket, error)),
        };
        let tcp = config
            .address
            .map(|address| {
                let bound = std::net::TcpListener::bind(address).and_then(|listener| {
                    listener.set_nonblocking(true)?;
                    TcpListener::from_std(listener)
                });
                bound.map_err(|error| StartError::bind(address, error))
            })
            .transpose()?;
        Ok(AdminBound(Self { unix, tcp, file: None }))
    }
}

/// An [`Admin`] that is to be served, or dropped.
pub(super) struct AdminBound(Admin);

impl AdminBound {
    /// Serves until the runtime ends.
    pub(super) fn serve(&mut self, desk: &Desk) {
        let admin = &mut self.0;
        if let Some((listener, path)) = admin.unix.take() {
            admin.file = Some(path);
            let router = router(desk.clone(), false);
            tokio::spawn(async move { report(axum::serve(listener, router).await) });
        }
        if let Some(listener) = admin.tcp.take() {
            let router = router(desk.clone(), true);
            tokio::spawn(async move { report(axum::serve(listener, router).await) });
        }
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        let unserved = self.unix.take().map(|(_, path)| path);
        if let Some(path) = self.file.take().or(unserved) {
            let _ = fs::remove_file(path);
        }
    }
}

fn report(outcome: io::Result<()>) {
    if let Err(error) = outcome {
        tracing::error!(%error, "the admin side ended");
    }
}

/// A socket that nobody answers on is what a killed process left: it is replaced.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent()
        && !directory.exists()
    {
        // The last directory only: a slip in the path is not to leave a tree behind.
        fs::create_dir(directory)?;
    }
    if fs::symlink_metadata(path).is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_socket(&found.file_type())) {
        if UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        fs::remove_file(path)?;
    }
    // Before the threads that make files are there: the mask is the process's.
    let before = umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    umask(before);
    listener
}

fn refused(path: &Path, error: io::Error) -> StartError {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse if UnixStream::connect(path).is_err() => {
            "a file that is no socket is there: remove it, or change [admin] socket"
        }
        io::ErrorKind::AddrInUse => "another antiphon answers there: stop it, or change [admin] socket",
        io::ErrorKind::NotFound => "its directory does not exist: make it, or change [admin] socket",
        io::ErrorKind::PermissionDenied => {
            "the directory must be writable for the user antiphon runs as; change [admin] socket"
        }
        _ => "change [admin] socket",
    };
    StartError::AdminSocket { path: path.to_owned(), error, hint: hint.to_owned() }
}
