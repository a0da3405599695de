//! Three children that outlive antiphon, antiphon on a journal, and the operator who ends doubts by looking.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::recorder::Recorder;
use crate::support::proxy::{Proxy, Setup, Until, text};
use crate::support::{Driver, PATIENCE, TempDir};
use crate::writers::{Kind, Told};

pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

pub(crate) struct World {
    pub(crate) children: [Recorder; 3],
    pub(crate) proxy: Proxy,
    pub(crate) told: Told,
    /// For messages: what is played, with its seed.
    pub(crate) story: String,
    _state: TempDir,
}

impl World {
    pub(crate) fn start(driver: Driver, dialect: &str, more: impl FnOnce(Setup) -> Setup) -> Self {
        let children = [(); 3].map(|()| Recorder::start());
        let state = TempDir::new("durable");
        let rules = if dialect == "aci" { "idol" } else { "http" };
        let setup = Setup::new(driver, dialect, rules)
            .set("state", "directory", text(&state.join("antiphon").to_string_lossy()))
            // Where the folder for temporary files is memory, a kill loses nothing either.
            .set("state", "any_file_system", if is_memory(state.path()) { "true" } else { "false" })
            .set("workers", "count", "2")
            .group("live_wait", text("5s"))
            .group("write_deadline", text("25s"));
        let setup = NAMES.iter().zip(&children).fold(setup, |setup, (name, child)| setup.child(name, child.port()));
        let proxy = Proxy::start(&more(setup));
        let world = Self { children, proxy, told: Told::default(), story: format!("{driver:?}"), _state: state };
        NAMES.iter().for_each(|name| world.proxy.wait_child_state(name, "up"));
        world
    }

    /// Has clients write while something happens, which ends antiphon.
    pub(crate) fn write_while(
        &mut self,
        clients: usize,
        kinds: &[Kind],
        body: &[u8],
        happens: impl FnOnce(&mut Proxy, &mut [Recorder; 3]),
    ) {
        let (told, port, gone) = (&self.told, self.proxy.port, AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..clients {
                scope.spawn(|| told.write_until(&gone, port, kinds, body));
            }
            happens(&mut self.proxy, &mut self.children);
            gone.store(true, Ordering::SeqCst);
        });
    }

    /// Waits until what a killed antiphon has sent has arrived everywhere.
    pub(crate) fn drain(&self) {
        self.children.iter().for_each(Recorder::drain);
    }

    /// Starts antiphon again, once what it had sent before has arrived everywhere.
    pub(crate) fn start_again(&mut self) {
        self.children.iter_mut().for_each(Recorder::start_again);
        self.drain();
        // Where all need the operator, it is not ready before that.
        self.proxy.start_again(Until::Answering);
    }

    /// Until every child is up and has all: ends doubts as an operator does, by looking, and reseeds whoever needs it.
    /// Nobody writes meanwhile.
    pub(crate) fn settle(&self) {
        let mut seen = Vec::new();
        let begun = Instant::now();
        loop {
            let mut settled = true;
            assert!(begun.elapsed() < PATIENCE, "{}: the children do not come together: {seen:#?}", self.story);
            seen.clear();
            for (child, name) in NAMES.iter().enumerate() {
                let status = self.proxy.child(name);
                let state = status["state"].as_str().unwrap_or_default();
                let why = status["why"].as_str().unwrap_or_default();
                // One that died on a live change, or lacks one, has diverged by its own fault, or by the killer's.
                let is_lawful = why.contains("live change");
                assert!(state != "diverged" || is_lawful, "{}: by no fault of its own: {status:#}", self.story);
                if let Some(sequence) = status["doubt"].as_u64() {
                    self.look_and_resolve(child, sequence);
                } else if ["needs_reseed", "diverged"].contains(&state) {
                    self.reseed(child, why);
                }
                seen.push(status.clone());
                settled &= state == "up" && status["lag"] == 0 && status["doubt"].is_null();
            }
            if settled {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Has the child the change that it is in doubt about? The journal tells which one that is.
    fn look_and_resolve(&self, child: usize, sequence: u64) {
        let target = self.target_of(sequence);
        let has = self.children[child].taken().contains(&target);
        let word = if has { "applied" } else { "lost" };
        let ran = self.proxy.command(&["child", "resolve", NAMES[child], word]);
        // A sibling's answer, or the rule, may have been quicker.
        assert!(ran.code == Some(0) || ran.text().contains("doubt"), "{}: {}", self.story, ran.text());
    }

    fn target_of(&self, sequence: u64) -> String {
        let journal = self._state.join("antiphon").join("g");
        let from = sequence.to_string();
        let said = crate::support::proxy::antiphon(&["journal", "dump", &journal.to_string_lossy(), "--from", &from]);
        let line = said.stdout.lines().find(|line| line.contains(&format!(" change {sequence} ")));
        let line = line.unwrap_or_else(|| panic!("no change {sequence}: {}", said.text()));
        let request = line.rsplit(" \"").next().unwrap_or_default();
        request.split(' ').nth(1).unwrap_or_else(|| panic!("no request in `{line}`")).to_owned()
    }

    /// Copies a good child's data, then attaches. Right only where the child cannot know whether it has a change that may
    /// not be sent again: whatever else brings a child there is our own fault.
    fn reseed(&self, child: usize, why: &str) {
        assert!(
            ["unknown", "owed", "octets of at most", "live change"].iter().any(|cause| why.contains(cause)),
            "{}: {why}",
            self.story
        );
        let good = (0..NAMES.len()).find(|other| {
            let status = self.proxy.child(NAMES[*other]);
            status["state"] == "up" && status["lag"] == 0 && status["doubt"].is_null()
        });
        let Some(good) = good else { return };
        let data = self.children[good].taken().clone();
        *self.children[child].taken() = data;
        let ran = self.proxy.command(&["child", "attach", NAMES[child]]);
        assert_eq!(ran.code, Some(0), "{}: {}", self.story, ran.text());
    }
}

fn is_memory(path: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    rustix::fs::statfs(path).is_ok_and(|found| found.f_type as u64 == TMPFS)
}
