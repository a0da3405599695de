//! A real child: Apache httpd with mod_dav on a folder of its own: all of WebDAV, properties and locks too.
//!
//! Debian's package keeps its modules in `/usr/lib/apache2/modules`. Started by root it serves as `www-data`, so the
//! folder is that user's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::tree::{self, Tree};
use super::{TempDir, client, eventually, need, ports, skip};

/// One httpd, running or stopped.
#[derive(Debug)]
pub struct Apache {
    /// Stands in `X-Child` of its answers.
    pub name: String,
    port: u16,
    program: PathBuf,
    dir: TempDir,
    process: Option<Child>,
}

const MODULES: &str = "/usr/lib/apache2/modules";

/// The program, if it is here with its modules.
pub fn program() -> Option<PathBuf> {
    let program = need("apache2")?;
    let has_dav = Path::new(MODULES).join("mod_dav_fs.so").is_file();
    if !has_dav {
        skip("no mod_dav_fs.so; apt-get install apache2");
    }
    has_dav.then_some(program)
}

impl Apache {
    /// Starts one and waits until it answers.
    pub fn start(program: &Path, name: &str) -> Self {
        let dir = TempDir::new(&format!("apache-{name}"));
        let port = ports::free();
        for folder in ["root", "locks"] {
            let path = dir.join(folder);
            fs::create_dir(&path).expect("a folder for httpd");
            if rustix::process::geteuid().is_root() {
                let given = Command::new("chown").arg("www-data:www-data").arg(&path).status();
                assert!(given.is_ok_and(|status| status.success()), "the folder is not given to www-data");
            }
        }
        let mut apache = Self { name: name.to_owned(), port, program: program.to_owned(), dir, process: None };
        apache.dir.write("apache.conf", &apache.config());
        apache.start_again();
        apache
    }

    fn config(&self) -> String {
        let (name, port, dir) = (&self.name, self.port, self.dir.path().display());
        let modules: String = ["mpm_event", "authz_core", "headers", "dav", "dav_fs", "dav_lock"]
            .iter()
            .map(|module| format!("LoadModule {module}_module {MODULES}/mod_{module}.so\n"))
            .collect();
        let user = match rustix::process::geteuid().is_root() {
            true => "User www-data\nGroup www-data\n",
            false => "",
        };
        format!(
            "ServerRoot {dir}\nServerName 127.0.0.1\nListen 127.0.0.1:{port}\nPidFile {dir}/pid\nErrorLog {dir}/error.log\n\
             DefaultRuntimeDir {dir}\n{modules}{user}DocumentRoot {dir}/root\nDavLockDB {dir}/locks/db\n\
             StartServers 1\nServerLimit 2\nThreadsPerChild 16\nMaxRequestWorkers 32\nMinSpareThreads 1\nMaxSpareThreads 32\n\
             KeepAlive On\nKeepAliveTimeout 60\nMaxKeepAliveRequests 0\nHeader always set X-Child {name}\n\
             <Directory {dir}/root>\n  Dav On\n  Require all granted\n  AllowOverride None\n</Directory>\n"
        )
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its files; without the properties, which it keeps in a database of their own.
    pub fn tree(&self) -> Tree {
        let mut tree = tree::read(&self.dir.join("root"));
        tree.retain(|path, _| !path.split('/').any(|part| part == ".DAV"));
        tree
    }

    /// INT by way of TERM: it ends at once, with whatever it is doing.
    pub fn stop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw).expect("a process number");
        let _ = kill_process(pid, Signal::TERM);
        process.wait().expect("our own child process");
    }

    /// On the same port and folder.
    pub fn start_again(&mut self) {
        assert!(self.process.is_none(), "it runs");
        let process = Command::new(&self.program)
            .args(["-DFOREGROUND", "-f", &self.dir.join("apache.conf").to_string_lossy()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("httpd starts");
        self.process = Some(process);
        eventually("httpd answers", || client::get(self.port, "/").ok());
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        self.stop();
    }
}
