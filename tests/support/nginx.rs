//! A real child: nginx with WebDAV, on a folder of its own.
//!
//! It needs the dav module (Debian's package has it): PUT, DELETE, MKCOL, COPY and MOVE. MKCOL wants a trailing slash,
//! and the host of a Destination must be that of the request.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::tree::{self, Tree};
use super::{TempDir, client, eventually, need, ports, skip};

/// One nginx, running or stopped.
#[derive(Debug)]
pub struct Nginx {
    /// Stands in `X-Child` of its answers.
    pub name: String,
    port: u16,
    program: PathBuf,
    dir: TempDir,
    process: Option<Child>,
}

/// The field that names the child which answered.
pub const CHILD: &str = "X-Child";

/// The program, if it is here and can do WebDAV.
pub fn program() -> Option<PathBuf> {
    let program = need("nginx")?;
    let version = Command::new(&program).arg("-V").stdin(Stdio::null()).output().expect("nginx -V");
    let has_dav = String::from_utf8_lossy(&version.stderr).contains("http_dav_module");
    if !has_dav {
        skip("this nginx was built without http_dav_module; apt-get install nginx");
    }
    has_dav.then_some(program)
}

impl Nginx {
    /// Starts one and waits until it answers.
    pub fn start(program: &Path, name: &str) -> Self {
        let dir = TempDir::new(&format!("nginx-{name}"));
        let port = ports::free();
        for folder in ["root", "tmp"] {
            std::fs::create_dir(dir.join(folder)).expect("a folder for nginx");
        }
        let mut nginx = Self { name: name.to_owned(), port, program: program.to_owned(), dir, process: None };
        nginx.dir.write("nginx.conf", &nginx.config());
        nginx.start_again();
        nginx
    }

    fn config(&self) -> String {
        let (name, port, dir) = (&self.name, self.port, self.dir.path().display());
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|what| format!("  {what}_temp_path {dir}/tmp/{what};\n"))
            .collect();
        format!(
            "daemon off;\nmaster_process off;\npid {dir}/pid;\nerror_log {dir}/error.log warn;\n\
             events {{ worker_connections 512; }}\n\
             http {{\n  access_log off;\n{temporary}  client_max_body_size 64m;\n\
             \x20 server {{\n    listen 127.0.0.1:{port};\n    root {dir}/root;\n\
             \x20   add_header {CHILD} {name} always;\n    create_full_put_path on;\n\
             \x20   dav_methods PUT DELETE MKCOL COPY MOVE;\n  }}\n}}\n"
        )
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// What it serves.
    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    pub fn tree(&self) -> Tree {
        tree::read(&self.root())
    }

    /// TERM: it ends at once, with whatever it is doing.
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
            .args(["-p", &self.dir.path().to_string_lossy(), "-c", "nginx.conf"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx starts");
        self.process = Some(process);
        eventually("nginx answers", || client::get(self.port, "/").ok());
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.stop();
    }
}
