//! A real child: InfluxDB 1.x on a folder of its own, with nothing that runs by the clock.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::client::{self, Ask};
use super::{TempDir, eventually, need, ports};

/// One influxd, running or stopped.
#[derive(Debug)]
pub struct InfluxDb {
    pub name: String,
    port: u16,
    program: PathBuf,
    dir: TempDir,
    process: Option<Child>,
}

/// The program, if it is here.
pub fn program() -> Option<PathBuf> {
    need("influxd")
}

impl InfluxDb {
    /// Starts one and waits until it answers.
    pub fn start(program: &Path, name: &str) -> Self {
        let dir = TempDir::new(&format!("influxdb-{name}"));
        let mut influx =
            Self { name: name.to_owned(), port: ports::free(), program: program.to_owned(), dir, process: None };
        influx.dir.write("influxdb.conf", &influx.config(ports::free()));
        influx.start_again();
        influx
    }

    fn config(&self, rpc_port: u16) -> String {
        let (port, dir) = (self.port, self.dir.path().display());
        format!(
            "reporting-disabled = true\nbind-address = \"127.0.0.1:{rpc_port}\"\n\
             [meta]\ndir = \"{dir}/meta\"\nlogging-enabled = false\n\
             [data]\ndir = \"{dir}/data\"\nwal-dir = \"{dir}/wal\"\nquery-log-enabled = false\n\
             [http]\nbind-address = \"127.0.0.1:{port}\"\nlog-enabled = false\n\
             [monitor]\nstore-enabled = false\n[retention]\nenabled = false\n[shard-precreation]\nenabled = false\n\
             [continuous_queries]\nenabled = false\n[subscriber]\nenabled = false\n"
        )
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// What it answers itself to a query.
    #[track_caller]
    pub fn query(&self, database: &str, text: &str) -> String {
        let target = format!("/query?db={database}&q={}", text.replace(' ', "+"));
        let answer = Ask::get(&target).at(self.port).unwrap_or_else(|why| panic!("{} {text}: {why}", self.name));
        assert_eq!(answer.status(), 200, "{answer}");
        answer.text()
    }

    /// KILL: what it has acknowledged is in its log of writes.
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw).expect("a process number");
        let _ = kill_process(pid, Signal::KILL);
        process.wait().expect("our own child process");
    }

    /// On the same port and folder.
    pub fn start_again(&mut self) {
        assert!(self.process.is_none(), "it runs");
        let process = Command::new(&self.program)
            .args(["-config", &self.dir.join("influxdb.conf").to_string_lossy()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("influxd starts");
        self.process = Some(process);
        eventually("influxd answers", || client::get(self.port, "/ping").ok().filter(|answer| answer.status() == 204));
    }
}

impl Drop for InfluxDb {
    fn drop(&mut self) {
        self.kill();
    }
}
