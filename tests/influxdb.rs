//! Three InfluxDB 1.x behind antiphon, on both drivers: databases and points with timestamps go to all, queries to one;
//! a child that was away has the same series when it is back; what each would date by its own clock reaches none.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

use std::path::Path;
use std::thread;

use antiphon::action::{Asked, Class, Dialect, RuleSet, Rules, Verdict};
use support::client::Ask;
use support::influxdb::{self, InfluxDb};
use support::message::Response;
use support::proxy::{Proxy, Setup, text};
use support::{Driver, eventually_eq, for_each_driver};

const CLIENTS: usize = 4;
const WRITES: usize = 10;
const EVERYTHING: [&str; 4] =
    ["SELECT * FROM cpu", "SELECT count(value) FROM cpu GROUP BY host", "SHOW SERIES", "SHOW MEASUREMENTS"];

struct Choir {
    children: Vec<InfluxDb>,
    proxy: Proxy,
}

impl Choir {
    fn start(program: &Path, driver: Driver) -> Self {
        let children: Vec<InfluxDb> = ["a", "b", "c"].iter().map(|name| InfluxDb::start(program, name)).collect();
        let setup = Setup::new(driver, "http", "influxdb")
            .group("write_deadline", text("20s"))
            .probe("request", text("GET /ping"))
            .probe("expect", "{ status = \"204\" }");
        let setup = children.iter().fold(setup, |setup, child| setup.child(&child.name, child.port()));
        let choir = Self { children, proxy: Proxy::start(&setup) };
        choir.wait_all_up();
        choir
    }

    fn wait_all_up(&self) {
        for child in &self.children {
            self.proxy.wait_child_state(&child.name, "up");
        }
    }

    fn ask(&self, ask: &Ask<'_>) -> Response {
        ask.at(self.proxy.port).unwrap_or_else(|why| panic!("{} {}: {why}", ask.method, ask.target))
    }

    /// A statement that changes something, as the command line tool sends it.
    #[track_caller]
    fn execute(&self, statement: &str) {
        let body = format!("db=metrics&q={}", statement.replace(' ', "+"));
        let ask =
            Ask::new("POST", "/query").field("Content-Type", "application/x-www-form-urlencoded").body(body.as_bytes());
        let answer = self.ask(&ask);
        assert_eq!(answer.status(), 200, "{statement}: {answer}");
        assert!(!answer.text().contains("error"), "{statement}: {answer}");
        assert!(answer.field("Antiphon-Sequence").is_some(), "{statement} is a change: {answer}");
    }

    /// Soon if not now: a child that has just come back may still be a few changes behind, and serves no reads then.
    fn assert_identical(&self) {
        for text in EVERYTHING {
            eventually_eq(text, &true, || {
                let answers: Vec<String> = self.children.iter().map(|child| child.query("metrics", text)).collect();
                answers.iter().all(|answer| *answer == answers[0])
            });
        }
    }
}

/// Points with timestamps from many clients at once; every one must be acknowledged.
fn write(port: u16, numbers: std::ops::Range<usize>) {
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let numbers = numbers.clone();
            scope.spawn(move || {
                for number in numbers {
                    let time = 1_600_000_000 + number;
                    // All write the last point: the last of them wins, and must be the same everywhere.
                    let body =
                        format!("cpu,host=h{client} value={number} {time}\ncpu,host=all value={client} {time}\n");
                    let ask = Ask::new("POST", "/write?db=metrics&precision=s").body(body.as_bytes());
                    let answer = ask.at(port).unwrap_or_else(|why| panic!("a write: {why}"));
                    assert_eq!(answer.status(), 204, "{answer}");
                    assert!(answer.field("Antiphon-Sequence").is_some(), "{answer}");
                }
            });
        }
    });
}

#[test]
fn a_child_that_was_away_has_the_same_series() {
    let Some(program) = influxdb::program() else { return };
    for_each_driver(|driver| {
        let mut choir = Choir::start(&program, driver);
        let port = choir.proxy.port;
        choir.execute("CREATE DATABASE metrics");
        write(port, 0..WRITES);
        choir.children[1].kill();
        write(port, WRITES..2 * WRITES);
        choir.proxy.wait_child_state("b", "down");
        choir.execute("CREATE DATABASE other");
        choir.execute("DROP DATABASE other");
        choir.execute("DELETE FROM cpu WHERE host = 'h0' AND time < 1600000005s");
        thread::scope(|scope| {
            let writing = scope.spawn(|| write(port, 2 * WRITES..3 * WRITES));
            choir.children[1].start_again();
            writing.join().expect("the writers");
        });
        choir.wait_all_up();
        choir.assert_identical();
        for (host, points) in [("h0", 3 * WRITES - 5), ("h1", 3 * WRITES), ("all", 3 * WRITES)] {
            let text = format!("SELECT count(value) FROM cpu WHERE host = '{host}'");
            let count = choir.children[1].query("metrics", &text);
            assert!(count.contains(&format!(",{points}]")), "{host}: {count}");
        }
        // A query is answered by one, and is no change.
        let answer = choir.ask(&Ask::get("/query?db=metrics&q=SHOW+DATABASES"));
        assert_eq!(answer.status(), 200, "{answer}");
        assert!(answer.text().contains("metrics") && !answer.text().contains("other"), "{answer}");
        assert!(answer.field("Antiphon-Sequence").is_none(), "{answer}");
    });
}

#[test]
fn what_each_would_date_by_its_own_clock_reaches_none() {
    let Some(program) = influxdb::program() else { return };
    for_each_driver(|driver| {
        let choir = Choir::start(&program, driver);
        choir.execute("CREATE DATABASE metrics");
        write(choir.proxy.port, 0..1);
        for (ask, status, code) in [
            (Ask::new("POST", "/write?db=metrics").body(b"cpu value=1"), 422, "server_time"),
            (Ask::new("POST", "/write?db=metrics").body(b"cpu value=1 1\ncpu value=2\n"), 422, "server_time"),
            (Ask::new("POST", "/query?db=metrics&q=DELETE+FROM+cpu+WHERE+time+<+now()"), 422, "server_time"),
            (Ask::new("POST", "/query?q=KILL+QUERY+1"), 403, "action_refused"),
            (
                Ask::new("POST", "/query?q=SHOW+DATABASES")
                    .field("Content-Type", "application/x-www-form-urlencoded")
                    .body(b"q=DROP+DATABASE+metrics"),
                400,
                "action_ambiguous",
            ),
        ] {
            let answer = choir.ask(&ask);
            assert_eq!(answer.status(), status, "{} {answer}", ask.target);
            assert!(answer.text().contains(&format!("\"code\":\"{code}\"")), "{answer}");
        }
        choir.assert_identical();
        let points = choir.children[0].query("metrics", "SELECT count(value) FROM cpu");
        assert!(points.contains(&format!(",{}]", CLIENTS + 1)), "{points}");
    });
}

/// What a server of this version makes of texts that are hard to read: of none that we call a read may it change a thing.
#[test]
fn the_server_and_the_rules_agree_on_what_reads() {
    let Some(program) = influxdb::program() else { return };
    let child = InfluxDb::start(&program, "a");
    let rules = influx_rules();
    let drop = "DROP DATABASE metrics";
    for text in [
        format!("SHOW DATABASES {drop}"),
        format!("SHOW DATABASES --\r{drop}"),
        format!("SHOW DATABASES --\n;{drop}"),
        format!("SHOW DATABASES /* a /* b */ ; {drop} --*/"),
        format!("SHOW DATABASES ;\0; {drop}"),
        format!("SELECT '\\'; {drop} --' FROM x"),
        format!("SELECT a FROM /;{drop};/"),
        format!("SELECT a FROM /'/ ; {drop}; -- /'/"),
        format!("SELECT a FROM /a\\\\/ ; {drop}; SELECT a FROM /b/"),
        format!("SELECT a / 'x' FROM x; {drop}; -- '"),
        format!("SELECT a FROM x WHERE b =~ /*; {drop}; */ /x/"),
        format!("SELECT \"a\\\" FROM x; {drop}; --\""),
        format!("SHOW DATABASES; {drop}"),
    ] {
        let create = Ask::new("POST", "/query?q=CREATE+DATABASE+metrics").at(child.port()).expect("an answer");
        assert_eq!(create.status(), 200, "{create}");
        let encoded: String = text.bytes().map(|octet| format!("%{octet:02X}")).collect();
        let target = format!("/query?db=metrics&q={encoded}");
        let answer = Ask::new("POST", &target).at(child.port()).expect("an answer");
        let changed = !child.query("", "SHOW DATABASES").contains("metrics");
        let asked = Asked::bare(b"POST", target.as_bytes());
        let reads = match rules.classify(&asked) {
            Ok(Verdict::Decided(decision)) => decision.class == Class::Read,
            other => panic!("{text}: {other:?}"),
        };
        assert!(!(reads && changed), "{text}: called a read, and {}", answer.text());
    }
}

/// Of no body that we take for dated may the server date a point itself.
#[test]
fn the_server_and_the_rules_agree_on_what_has_a_timestamp() {
    let Some(program) = influxdb::program() else { return };
    let child = InfluxDb::start(&program, "a");
    let create = Ask::new("POST", "/query?q=CREATE+DATABASE+metrics").at(child.port()).expect("an answer");
    assert_eq!(create.status(), 200, "{create}");
    let rules = influx_rules();
    let pieces = [
        "m f=1",
        "m,t=a\\ b f=\"x y\"",
        "m f=\"a",
        "\"",
        " 12",
        "\n",
        "\\",
        "#",
        " ",
        "m f=1i 7",
        "\r\n",
        ",g=2",
        "\t",
    ];
    let seed = std::env::var("ANTIPHON_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    let mut random = seed;
    let mut dated = 0;
    for _ in 0..600 {
        let mut body = String::new();
        for _ in 0..8 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            body += pieces[(random >> 33) as usize % pieces.len()];
        }
        let asked = Asked::bare(b"POST", b"/write?db=metrics").with_body(body.as_bytes());
        let Ok(Verdict::Decided(decision)) = rules.classify(&asked) else { panic!("{body:?}") };
        if decision.class == Class::Change {
            dated += 1;
            Ask::new("POST", "/write?db=metrics").body(body.as_bytes()).at(child.port()).expect("an answer");
            let own = child.query("metrics", "SELECT * FROM /.*/ WHERE time > '2020-01-01T00:00:00Z'");
            assert!(!own.contains("series"), "seed {seed}: {body:?} was dated by the server: {own}");
        }
    }
    assert!(dated > 20, "only {dated} of them were taken for dated");
}

fn influx_rules() -> Rules {
    Rules::new(Dialect::Http, RuleSet::Influxdb, Vec::new(), Class::Change).expect("rules")
}
