//! The DAH dialect, on both drivers: what scripts and clients of a DAH send, and how they cut what comes back. Errors of
//! our own in the envelope that ACI clients parse; engines shown and moved; who may ask; failover as an operator sees it.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use support::aci::AciServer;
use support::client::{self, Ask, Client};
use support::message::Response;
use support::proxy::{Proxy, Setup, Until, assert_says, text};
use support::{Driver, TempDir, eventually, eventually_eq, for_each_driver};

/// Two servers and a front that fails over.
struct World {
    children: [AciServer; 2],
    proxy: Proxy,
}

impl World {
    fn start(driver: Driver) -> Self {
        Self::with(driver, |setup| setup)
    }

    fn with(driver: Driver, more: impl Fn(Setup) -> Setup) -> Self {
        let children = AciServer::several();
        let setup = Setup::new(driver, "aci", "idol")
            .group("policy", text("failover"))
            .group("write_deadline", text("25s"))
            .probe("request", text("GET /action=GetPid"))
            .child("a", children[0].port())
            .child("b", children[1].port());
        let proxy = Proxy::start(&more(setup));
        proxy.wait_child_state("a", "up");
        proxy.wait_child_state("b", "up");
        Self { children, proxy }
    }

    #[track_caller]
    fn ask(&self, target: &str) -> Response {
        client::get(self.proxy.port, target).unwrap_or_else(|why| panic!("{target}: {why}"))
    }

    /// An action of ours that has to succeed.
    #[track_caller]
    fn must(&self, target: &str) -> String {
        let answer = self.ask(target);
        assert_eq!(answer.status(), 200, "{target}: {answer}");
        assert!(answer.text().contains("<response>SUCCESS</response>"), "{target}: {answer}");
        answer.text()
    }

    #[track_caller]
    fn show(&self) -> Shown {
        Shown::of(&self.must("/action=EngineManagement&EngineAction=ShowStatus"))
    }

    /// Nothing of ours has reached a child.
    #[track_caller]
    fn assert_untouched(&self) {
        for child in &self.children {
            assert!(child.changes().is_empty() && child.reads().is_empty(), "{:?}", child.events());
        }
    }
}

/// What `ShowStatus` says: the primary, and each engine's start tag.
#[derive(Debug)]
struct Shown {
    primary: String,
    engines: Vec<String>,
}

impl Shown {
    #[track_caller]
    fn of(xml: &str) -> Self {
        let engines = xml.split("<engine ").skip(1).map(|rest| between(rest, "", ">").to_owned());
        Self { primary: between(xml, "<primary_engine>", "</primary_engine>").to_owned(), engines: engines.collect() }
    }

    /// An attribute of an engine.
    #[track_caller]
    fn says(&self, engine: usize, name: &str) -> &str {
        between(&self.engines[engine], &format!("{name}=\""), "\"")
    }

    #[track_caller]
    fn statuses(&self) -> [&str; 2] {
        [self.says(0, "status"), self.says(1, "status")]
    }
}

#[track_caller]
fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("no `{before}` in {text}")).1;
    rest.split_once(after).unwrap_or_else(|| panic!("no `{after}` in {text}")).0
}

/// An error as the Java client reads it: the envelope's three children, and the fields of `error`.
#[track_caller]
fn assert_error(answer: &Response, status: u16, action: &str, code: &str) {
    let text = answer.text();
    assert_eq!(answer.status(), status, "{answer}");
    assert!(answer.field("Content-Type").is_some_and(|kind| kind.starts_with("text/xml")), "{answer}");
    let inner = between(&text, "<autnresponse xmlns:autn=\"http://schemas.autonomy.com/aci/\">", "</autnresponse>");
    let name = if action.is_empty() { "<action/>".to_owned() } else { format!("<action>{action}</action>") };
    let head = format!("{name}<response>ERROR</response><responsedata><error><errorid>ANTIPHON{action}");
    assert!(inner.starts_with(&head), "{answer}");
    assert!(inner.ends_with("</error></responsedata>"), "{answer}");
    assert_eq!(between(inner, "<errorcode>", "</errorcode>"), code, "{answer}");
    let number = u16::from_str_radix(between(inner, "<rawerrorid>0x", "</rawerrorid>"), 16).expect("a number");
    assert_eq!(between(inner, "<errorid>", "</errorid>"), format!("ANTIPHON{action}{number}"), "{answer}");
    for field in ["errorstring", "errordescription"] {
        assert!(!between(inner, &format!("<{field}>"), "<").is_empty(), "{answer}");
    }
    // dd MMM yy HH:mm:ss
    let time = between(inner, "<errortime>", "</errortime>");
    let shape: String = time.chars().map(|letter| if letter.is_ascii_digit() { '9' } else { letter }).collect();
    assert_eq!((&shape[..3], &shape[6..]), ("99 ", " 99 99:99:99"), "{answer}");
}

// === errors of our own ===

#[test]
fn our_own_errors_travel_in_the_envelope() {
    for_each_driver(|driver| {
        for (way, as_200) in [("status", false), ("envelope", true)] {
            let mut world = World::with(driver, |setup| setup.group("aci_errors", text(way)));
            let status = |status: u16| if as_200 { 200 } else { status };
            let twice = world.ask("/action=Query&Action=List");
            assert_error(&twice, status(400), "", "ACTION_AMBIGUOUS");
            let encrypted = world.ask("/?Action=Encrypted&Data=MTAw");
            assert_error(&encrypted, status(400), "ENCRYPTED", "ACTION_ENCRYPTED");
            let form = Ask::new("POST", "/").field("Content-Type", "text/plain").body(b"Action=Encrypted&Data=MTAw");
            assert_error(&form.at(world.proxy.port).expect("an answer"), status(400), "ENCRYPTED", "ACTION_ENCRYPTED");
            world.assert_untouched();

            world.children[0].stop();
            world.children[1].stop();
            eventually("no child is up", || (world.ask("/a=Query&Text=x").text().contains("NO_CHILD")).then_some(()));
            assert_error(&world.ask("/a=query&text=x"), status(503), "QUERY", "NO_CHILD");
            let change = world.ask("/action=UserAdd&UserName=x");
            assert_error(&change, status(503), "USERADD", "NO_CHILD");
            let form = Ask::new("POST", "/").body(b"a=UserAdd&UserName=x&ResponseFormat=json");
            let json = form.at(world.proxy.port).expect("an answer");
            let value: Value = serde_json::from_slice(&json.body).unwrap_or_else(|error| panic!("{error}: {json}"));
            let envelope = &value["autnresponse"];
            assert_eq!(json.status(), status(503), "{json}");
            assert_eq!(envelope["response"]["$"], "ERROR", "{json}");
            assert_eq!(envelope["responsedata"]["error"]["errorcode"]["$"], "NO_CHILD", "{json}");
            let simple = world.ask("/action=Query&ResponseFormat=simpleJSON");
            let value: Value = serde_json::from_slice(&simple.body).unwrap_or_else(|error| panic!("{error}: {simple}"));
            assert_eq!(value["autnresponse"]["responsedata"]["error"]["errorid"], "ANTIPHONQUERY503", "{simple}");
            // What is wrong with HTTP is HTTP's: the group is not known then.
            let mut broken = Client::connect(world.proxy.port).expect("a connection");
            broken.send(b"GET /action=Query HTTP/1.1\r\n\r\n").expect("sent");
            let answer = broken.answer(false).expect("an answer");
            assert_eq!(answer.status(), 400, "{answer}");
            assert!(answer.text().contains("host_missing"), "{answer}");
        }
    });
}

// === engines ===

const BOUNDARY: &str = "----antiphon7MA4YWxk";

/// Every form of a request that clients use, for an action with one parameter more.
fn forms(name: &str, value: &str) -> Vec<(&'static str, String, Option<String>, String)> {
    let multi = || Some(format!("multipart/form-data; boundary={BOUNDARY}"));
    let part = |name: &str, value: &str| {
        format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let form = || Some("application/x-www-form-urlencoded".to_owned());
    let plain = || Some("text/plain".to_owned());
    let own = "EngineManagement";
    vec![
        ("GET", format!("/action={own}&{name}={value}"), None, String::new()),
        ("GET", format!("/a=enginemanagement&{}={}", name.to_lowercase(), value.to_uppercase()), None, String::new()),
        ("GET", format!("/?Action={own}&{name}={value}"), None, String::new()),
        ("GET", format!("/{name}={value}&a=Engine%4danagement"), None, String::new()),
        ("POST", "/".into(), plain(), format!("Action={own}&{name}={value}")),
        ("POST", "/".into(), form(), format!("a={own}&{name}={value}")),
        ("POST", "/".into(), plain(), format!("action={own}\r\n{name}={value}\r\n")),
        ("POST", format!("/a={own}"), form(), format!("{name}={value}")),
        ("POST", format!("/a={own}&{name}={value}"), form(), "ResponseFormat=xml".into()),
        ("POST", format!("/?Action={own}"), multi(), part(name, value) + &format!("--{BOUNDARY}--\r\n")),
        ("POST", "/".into(), multi(), part("a", own) + &part(name, value) + &format!("--{BOUNDARY}--\r\n")),
        ("GET", "/".into(), form(), format!("a={own}&{name}={value}")),
    ]
}

#[test]
fn every_form_of_a_request_is_answered_by_antiphon_itself() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        let mut kept = Client::connect(world.proxy.port).expect("a connection");
        for (method, target, kind, body) in forms("EngineAction", "ShowStatus") {
            let mut ask = Ask::new(method, &target);
            if let Some(kind) = &kind {
                ask = ask.field("Content-Type", kind.clone());
            }
            if !body.is_empty() {
                ask = ask.body(body.as_bytes());
            }
            let answer = kept.ask(&ask).unwrap_or_else(|why| panic!("{method} {target} {body}: {why}"));
            assert_eq!(answer.status(), 200, "{method} {target} {body}: {answer}");
            let shown = Shown::of(&answer.text());
            assert_eq!((shown.primary.as_str(), shown.statuses()), ("0", ["online", "online"]), "{answer}");
        }
        world.assert_untouched();
        // A near miss is the children's affair.
        assert_eq!(world.ask("/action=EngineManagements&EngineAction=PowerDown&EngineID=0").status(), 200);
        assert_eq!(world.show().statuses(), ["online", "online"]);
    });
}

/// The pipe of the vendor's container scripts: one element a child, `engine id` in front, the host in the start tag.
#[test]
fn scripts_cut_show_status_with_sed_and_grep() {
    let world = World::start(Driver::Epoll);
    let xml = world.must("/a=enginemanagement&engineaction=showstatus");
    for (id, child) in world.children.iter().enumerate() {
        let pipe = "sed 's/</\\n</g' | grep 'engine id' | grep 'host=\"127.0.0.1\"' | grep \"$1\" \
                    | awk '{print $2}' | cut -d '=' -f2 | grep -o -E '[0-9]+'";
        let port = format!("port=\"{}\"", child.port());
        let mut shell = Command::new("sh");
        shell.args(["-c", pipe, "sh", &port]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("a shell");
        shell.stdin.take().expect("its input").write_all(xml.as_bytes()).expect("written");
        let out = shell.wait_with_output().expect("its output");
        assert_eq!(String::from_utf8_lossy(&out.stdout), format!("{id}\n"), "{xml}");
    }
    let start = format!("<engine id=\"0\" host=\"127.0.0.1\" port=\"{}\"", world.children[0].port());
    assert!(xml.contains(&start), "{xml}");
}

#[test]
fn engines_are_moved_by_number_and_by_name() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        let order = |rest: &str| world.must(&format!("/action=EngineManagement&EngineAction={rest}"));
        order("PowerDown&EngineID=1");
        assert_eq!(world.show().statuses(), ["online", "offline"]);
        assert_eq!(world.proxy.child_state("b"), "offline");
        order("PowerDown&EngineID=0,1");
        assert_eq!(world.show().statuses(), ["offline", "offline"]);
        order("PowerUp&EngineName=A");
        order("powerup&enginename=b");
        eventually("both are back", || (world.show().statuses() == ["online", "online"]).then_some(()));
        order("ChangeWeight&EngineID=1&EngineWeight=7");
        assert_eq!(world.show().says(1, "weight"), "7");
        order("SetPrimaryEngine&EngineID=1");
        assert_eq!(world.show().primary, "1");
        order("SetPrimaryEngines&EngineName=a");
        assert_eq!(world.show().primary, "0");
        let probes = world.children[0].probes();
        order("Ping&EngineID=0");
        eventually("a is asked", || (world.children[0].probes() > probes).then_some(()));
        assert_says(&world.proxy.log(), &["by=\"127.0.0.1 by enginemanagement\""]);
        // An order on one engine that is not there is carried out on none.
        let refused = world.ask("/action=EngineManagement&EngineAction=PowerDown&EngineID=0,9");
        assert_error(&refused, 400, "ENGINEMANAGEMENT", "ERRORPARAMINVALID");
        assert_eq!(world.show().statuses(), ["online", "online"]);
    });
}

#[test]
fn what_is_wrong_with_an_order_is_said() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        let engine = "ENGINEMANAGEMENT";
        for (target, status, action, code) in [
            ("/action=EngineManagement", 400, engine, "ERRORPARAMMISSING"),
            ("/action=EngineManagement&EngineAction=Explode", 400, engine, "ERRORPARAMINVALID"),
            ("/action=EngineManagement&EngineAction=PowerUp", 400, engine, "ERRORPARAMMISSING"),
            ("/action=EngineManagement&EngineAction=PowerUp&EngineID=", 400, engine, "ERRORPARAMMISSING"),
            ("/action=EngineManagement&EngineAction=PowerUp&EngineID=2", 400, engine, "ERRORPARAMINVALID"),
            ("/action=EngineManagement&EngineAction=PowerUp&EngineID=-1", 400, engine, "ERRORPARAMINVALID"),
            ("/action=EngineManagement&EngineAction=PowerUp&EngineName=%3Cz%3E", 400, engine, "ERRORPARAMINVALID"),
            ("/action=EngineManagement&EngineAction=PowerUp&EngineID=0&EngineID=1", 400, engine, "ERRORPARAMINVALID"),
            ("/action=EngineManagement&EngineAction=ChangeWeight&EngineID=0", 400, engine, "ERRORPARAMINVALID"),
            (
                "/a=EngineManagement&EngineAction=ChangeWeight&EngineID=0&EngineWeight=10001",
                400,
                engine,
                "ERRORPARAMINVALID",
            ),
            ("/action=EngineManagement&EngineAction=SetPrimaryEngine&EngineID=0,1", 400, engine, "ERRORPARAMINVALID"),
            ("/action=EngineManagement&EngineAction=EngineAdd&EngineHost=c", 400, engine, "ERRORPARAMMISSING"),
            ("/action=EngineManagement&EngineAction=EngineEdit&EngineID=0", 400, engine, "ERRORPARAMMISSING"),
            (
                "/action=EngineManagement&EngineAction=EngineEdit&EngineID=9&EnginePort=1",
                400,
                engine,
                "ERRORPARAMINVALID",
            ),
            ("/action=EngineManagement&EngineAction=EngineRemove", 400, engine, "ERRORPARAMMISSING"),
            ("/action=DAHFlushQueue", 400, "DAHFLUSHQUEUE", "ERRORPARAMMISSING"),
            ("/action=DAHFlushQueue&Engine=0", 409, "DAHFLUSHQUEUE", "ERRORSTATE"),
            ("/action=DAHReadQueue&Engine=7", 400, "DAHREADQUEUE", "ERRORPARAMINVALID"),
        ] {
            assert_error(&world.ask(target), status, action, code);
        }
        world.must("/action=EngineManagement&EngineAction=PowerDown&EngineID=0");
        let ping = world.ask("/action=EngineManagement&EngineAction=Ping&EngineID=0");
        assert_error(&ping, 409, engine, "ERRORSTATE");
        world.assert_untouched();
    });
}

#[test]
fn answers_come_as_json_too() {
    let world = World::start(Driver::Epoll);
    let json = |format: &str| {
        let answer = world.ask(&format!("/a=EngineManagement&EngineAction=ShowStatus&responseformat={format}"));
        assert!(answer.field("Content-Type").is_some_and(|kind| kind.starts_with("application/json")), "{answer}");
        serde_json::from_slice::<Value>(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    };
    let value = json("json");
    let data = &value["autnresponse"]["responsedata"];
    assert_eq!(data["primary_engine"]["$"], "0", "{value:#}");
    assert_eq!(
        (&data["engine"][1]["@id"], &data["engine"][1]["@status"]),
        (&"1".into(), &"online".into()),
        "{value:#}"
    );
    let value = json("simplejson");
    let data = &value["autnresponse"]["responsedata"];
    assert_eq!((&data["primary_engine"], &data["engine"][0]["name"]), (&"0".into(), &"a".into()), "{value:#}");
}

// === queues ===

#[test]
fn a_queue_is_read_and_flushed() {
    for_each_driver(|driver| {
        let world = World::start(driver);
        world.must("/action=EngineManagement&EngineAction=PowerDown&EngineID=1");
        for user in ["x", "y"] {
            assert_eq!(world.ask(&format!("/action=UserAdd&UserName={user}")).status(), 200);
        }
        let queue = Shown::engines_of(&world.must("/action=DAHReadQueue"));
        assert!(queue[0].contains("lag=\"0\" cursor=\"2\"") && !queue[0].contains("first"), "{queue:?}");
        let waits = "lag=\"2\" cursor=\"0\" first_pending=\"1\" first_action=\"useradd\"";
        assert!(queue[1].contains(waits), "{queue:?}");
        assert_eq!(Shown::engines_of(&world.must("/a=dahreadqueue&engine=1")).len(), 1);
        let ran = world.proxy.command(&["queue", "ls"]);
        assert_eq!(ran.code, Some(0), "{}", ran.text());
        assert_says(&ran.stdout, &[":2\n", "b", "offline", "1 useradd"]);

        world.must("/action=DAHFlushQueue&Engine=1");
        world.must("/action=EngineManagement&EngineAction=PowerUp&EngineID=1");
        world.proxy.wait_child_state("b", "needs_reseed");
        assert_eq!(world.show().statuses(), ["online", "down"]);
        assert_eq!(world.show().says(1, "state"), "needs_reseed");
        assert!(world.show().says(1, "why").contains("flushed by the operator"));
        assert_eq!(world.ask("/action=UserAdd&UserName=z").status(), 200);
        assert!(world.children[1].changes().is_empty(), "nothing of what it missed, and nothing new");
        let ran = world.proxy.command(&["child", "attach", "b"]);
        assert_eq!(ran.code, Some(0), "{}", ran.text());
        world.proxy.wait_child_state("b", "up");
        assert_eq!(world.ask("/action=UserAdd&UserName=new").status(), 200);
        assert_eq!(world.children[1].changes().len(), 1);
    });
}

impl Shown {
    fn engines_of(xml: &str) -> Vec<String> {
        xml.split("<engine ").skip(1).map(|rest| between(rest, "", ">").to_owned()).collect()
    }
}

#[test]
fn the_command_line_has_the_same_orders() {
    let world = World::start(Driver::Epoll);
    let run = |words: &[&str]| world.proxy.command(&[&["child"], words].concat());
    let done = |words: &[&str]| {
        let ran = run(words);
        assert_eq!(ran.code, Some(0), "{words:?}: {}", ran.text());
    };
    done(&["weight", "b", "0"]);
    assert_eq!(world.show().says(1, "weight"), "0");
    let probes = world.children[1].probes();
    done(&["probe", "g/b"]);
    eventually("b is asked", || (world.children[1].probes() > probes).then_some(()));
    let ran = run(&["flush", "b"]);
    assert_eq!(ran.code, Some(1), "{}", ran.text());
    assert_says(&ran.stderr, &["nothing to flush"]);
    done(&["offline", "b"]);
    assert_eq!(world.ask("/action=UserAdd&UserName=x").status(), 200);
    done(&["flush", "b"]);
    done(&["online", "b"]);
    world.proxy.wait_child_state("b", "needs_reseed");
    let post = |path: &str| {
        let ask = Ask::new("POST", path).field("Antiphon-Admin", "1").body(b"");
        ask.at(world.proxy.admin).expect("an answer").status()
    };
    assert_eq!(post("/v1/children/a/weight?to=5"), 200);
    assert_eq!((post("/v1/children/a/weight"), post("/v1/children/a/explode")), (400, 404));
    assert_eq!(world.show().says(0, "weight"), "5");
}

// === who may ask ===

#[test]
fn only_admin_clients_are_answered() {
    for_each_driver(|driver| {
        let only = r#"["127.0.0.1/32"]"#;
        let world = World::with(driver, |setup| setup.set("admin", "admin_clients", only));
        let status = "/action=EngineManagement&EngineAction=ShowStatus";
        let mut stranger = Client::connect_from(Ipv4Addr::new(127, 0, 0, 2), world.proxy.port).expect("a connection");
        for target in [status, "/a=DAHReadQueue", "/?a=dahflushqueue&Engine=0"] {
            let answer = stranger.ask(&Ask::get(target)).expect("an answer");
            assert_eq!(answer.status(), 403, "{answer}");
            assert_says(&answer.text(), &["127.0.0.2 is not in [admin] admin_clients", "ERRORFORBIDDEN"]);
        }
        // What is the children's is answered to everybody.
        assert_eq!(stranger.ask(&Ask::get("/action=Query&Text=x")).expect("an answer").status(), 200);
        world.must(status);
        let order = "/action=EngineManagement&EngineAction=PowerDown&EngineID=0";
        for (field, value) in [("Sec-Fetch-Site", "cross-site"), ("Origin", "null"), ("X-Forwarded-For", "10.0.0.1")] {
            let answer = Ask::get(order).field(field, value).at(world.proxy.port).expect("an answer");
            assert_error(&answer, 403, "ENGINEMANAGEMENT", "ERRORFORBIDDEN");
        }
        assert_eq!(world.show().statuses(), ["online", "online"]);
    });
}

#[test]
fn a_listener_that_owns_nothing_passes_everything_on() {
    let world = World::with(Driver::Epoll, |setup| setup.routes("group = \"g\"\nown = []\n"));
    assert_eq!(world.ask("/action=EngineManagement&EngineAction=PowerDown&EngineID=0").status(), 200);
    assert_eq!(world.proxy.child_state("a"), "up");
    assert_eq!(world.children[0].reads().len() + world.children[1].reads().len(), 2, "to each of them, as a change");
}

// === the admin address ===

#[test]
fn the_admin_address_answers_the_service_actions() {
    let world = World::start(Driver::Epoll);
    let ask = |target: &str| world.proxy.admin_get(target).unwrap_or_else(|why| panic!("{target}: {why}"));
    let pid = format!("<autn:pid>{}</autn:pid>", world.proxy.pid());
    let port = format!("<autn:port>{}</autn:port>", world.children[1].port());
    for (action, parts) in [
        ("GetPid", vec![pid.as_str()]),
        ("GetStatus", vec!["<product>antiphon</product>", "<engine id=\"1\" host=", "<state>ready</state>"]),
        ("GetChildren", vec!["num_children=\"2\"", "<autn:name>b</autn:name>", port.as_str()]),
        ("GetVersion", vec!["<autn:producttypecsv>DAH</autn:producttypecsv>", env!("CARGO_PKG_VERSION")]),
        ("GetRequestLog", vec!["<action>GETREQUESTLOG</action>"]),
        ("GetLicenseInfo", vec!["<autn:validlicense>true</autn:validlicense>", "<autn:name>DAHReadQueue</autn:name>"]),
        ("ThreadStatus", vec!["<thread><id>0</id><clients>"]),
        ("GetStatistics", vec!["SuccessfulActions=\"0\""]),
        ("Help", vec!["<action name=\"EngineManagement\">"]),
        ("DAHReadQueue", vec!["cursor=\"0\""]),
        ("EngineManagement&EngineAction=ShowStatus", vec!["<primary_engine>0</primary_engine>"]),
    ] {
        for target in [format!("/action={action}"), format!("/?a={}", action.to_lowercase())] {
            let answer = ask(&target);
            assert_eq!(answer.status(), 200, "{answer}");
            assert_says(&answer.text(), &parts);
        }
    }
    for name in ["Wobble", "ShowPermissions", "GetStatusInfo", "GetConfig", "ValidateConfig", "TokenManagement"] {
        let answer = ask(&format!("/action={name}"));
        assert_error(&answer, 404, &name.to_uppercase(), "ERRORNOTIMPLEMENTED");
    }
    assert_error(&ask("/action=GetPid&a=GetPid"), 400, "", "ERRORPARAMINVALID");
    assert_eq!(ask("/nothing").status(), 404);
    // An order needs what no page can send, as in the other dialect; the socket is the operator's own.
    let order = "/action=EngineManagement&EngineAction=PowerDown&EngineName=b";
    assert_error(&ask(order), 403, "ENGINEMANAGEMENT", "ERRORFORBIDDEN");
    assert_eq!(world.proxy.child_state("b"), "up");
    let answer = Ask::get(order).field("Antiphon-Admin", "1").at(world.proxy.admin).expect("an answer");
    assert_eq!((answer.status(), world.proxy.child_state("b").as_str()), (200, "offline"), "{answer}");
    let answer = world.proxy.socket_get("/action=EngineManagement&EngineAction=PowerUp&EngineName=b");
    assert_eq!(answer.expect("an answer").status(), 200);
    world.proxy.wait_child_state("b", "up");
}

// === failover ===

#[test]
fn show_status_tells_the_truth_through_a_failover() {
    for_each_driver(|driver| {
        let mut world = World::start(driver);
        let read = |world: &World| assert_eq!(world.ask("/action=Query&Text=x").status(), 200);
        read(&world);
        let shown = world.show();
        assert_eq!((shown.primary.as_str(), shown.statuses()), ("0", ["online", "online"]));

        world.children[0].stop();
        read(&world);
        eventually("the second leads", || {
            read(&world);
            let shown = world.show();
            (shown.primary == "1" && shown.statuses() == ["down", "online"]).then_some(())
        });
        assert_eq!(world.ask("/action=UserAdd&UserName=meanwhile").status(), 200);

        world.children[0].start_again();
        eventually_eq("the first stands by", &["online".to_owned(), "online".to_owned()], || {
            world.show().statuses().map(str::to_owned)
        });
        assert_eq!(world.children[0].changes().len(), 1, "with what it missed");
        let before = world.children[0].reads().len();
        (0..5).for_each(|_| read(&world));
        assert_eq!(world.children[0].reads().len(), before, "and serves no reads");
        assert_eq!(world.show().primary, "1");

        world.must("/action=EngineManagement&EngineAction=SetPrimaryEngine&EngineID=0");
        assert_eq!(world.show().primary, "0");
        read(&world);
        assert_eq!(world.children[0].reads().len(), before + 1, "until it is told to lead");
    });
}

#[test]
fn show_status_tells_the_truth_after_restarts() {
    for_each_driver(|driver| {
        let directory = TempDir::new("dah-state");
        let kept = text(&directory.join("antiphon").to_string_lossy());
        let mut world = World::with(driver, |setup| setup.set("state", "directory", kept.clone()));
        let read = |world: &World| assert_eq!(world.ask("/action=Query&Text=x").status(), 200);
        world.children[0].stop();
        eventually("the second leads", || {
            read(&world);
            let shown = world.show();
            (shown.primary == "1" && shown.statuses() == ["down", "online"]).then_some(())
        });
        // The first is still away: killed or stopped, the next start finds that out by itself, and who leads is known.
        for how in ["kill", "stop"] {
            end(&mut world, how);
            world.proxy.start_again(Until::Answering);
            eventually_eq("the second leads again", &("1".to_owned(), ["down", "online"].map(str::to_owned)), || {
                let shown = world.show();
                (shown.primary.clone(), shown.statuses().map(str::to_owned))
            });
            read(&world);
        }
        // It returns, and stands by, also for the next starts.
        world.children[0].start_again();
        for how in ["kill", "stop"] {
            eventually_eq("both are there", &["online".to_owned(), "online".to_owned()], || {
                world.show().statuses().map(str::to_owned)
            });
            end(&mut world, how);
            world.proxy.start_again(Until::Ready);
            assert_eq!(world.show().primary, "1");
            let before = world.children[0].reads().len();
            (0..3).for_each(|_| read(&world));
            assert_eq!(world.children[0].reads().len(), before, "it serves no reads");
        }
        // Until it is told to lead, which holds as well.
        world.must("/action=EngineManagement&EngineAction=SetPrimaryEngine&EngineID=0");
        world.must("/action=EngineManagement&EngineAction=PowerDown&EngineID=1");
        for how in ["kill", "stop"] {
            end(&mut world, how);
            world.proxy.start_again(Until::Ready);
            let shown = world.show();
            assert_eq!((shown.primary.as_str(), shown.statuses()), ("0", ["online", "offline"]));
            read(&world);
        }
        world.must("/action=EngineManagement&EngineAction=PowerUp&EngineID=1");
        world.proxy.wait_child_state("b", "up");
    });
}

/// Ends the front: by kill -9, or as an operator stops it.
#[track_caller]
fn end(world: &mut World, how: &str) {
    if how == "kill" {
        return world.proxy.kill();
    }
    world.proxy.signal(Signal::TERM);
    assert!(world.proxy.wait_exit().success(), "{}", world.proxy.log());
}

// === the Java client ===

/// As `java-aci-api-ng` sends it: the action first, UTF-8, blanks as `+`, a pool of four kept connections, ten seconds
/// to read; and by POST, a form that says that it is plain text.
#[test]
fn the_java_client_is_served() {
    for_each_driver(|driver| {
        let world = World::with(driver, |setup| setup.group("aci_errors", text("envelope")));
        let limit = Duration::from_secs(10);
        let connect = |_| Client::connect_within(world.proxy.port, limit).expect("a connection");
        let mut pool: Vec<Client> = (0..4).map(connect).collect();
        let fields = |ask: Ask<'static>| {
            ask.field("Accept-Charset", "utf-8")
                .field("Accept-Encoding", "gzip, deflate")
                .field("Connection", "keep-alive")
                .field("User-Agent", "ACI API")
        };
        let get = |target| fields(Ask::get(target));
        let post = |body: &'static str| {
            fields(Ask::new("POST", "/")).field("Content-Type", "text/plain; charset=UTF-8").body(body.as_bytes())
        };
        for round in 0..8 {
            let client = &mut pool[round % 4];
            for ask in [
                get("/?Action=GetVersion"),
                get("/?Action=Query&Text=caf%C3%A9+noir&ResponseFormat=xml"),
                get("/?Action=UserAdd&UserName=by+get"),
                post("Action=Query&Text=caf%C3%A9+noir"),
                post("Action=UserAdd&UserName=by+post"),
            ] {
                let answer = client.ask(&ask).unwrap_or_else(|why| panic!("{ask:?}: {why}"));
                assert_eq!(answer.status(), 200, "{answer}");
                assert!(answer.text().contains("<response>SUCCESS</response>"), "{answer}");
            }
            for (ask, action, code) in [
                (get("/?Action=Encrypted&Data=MTAw"), "ENCRYPTED", "ACTION_ENCRYPTED"),
                (post("Action=Encrypted&Data=MTAw"), "ENCRYPTED", "ACTION_ENCRYPTED"),
                (post("Action=EngineManagement&EngineAction=Dance"), "ENGINEMANAGEMENT", "ERRORPARAMINVALID"),
            ] {
                let answer = client.ask(&ask).unwrap_or_else(|why| panic!("{ask:?}: {why}"));
                assert_error(&answer, 200, action, code);
            }
        }
        for child in &world.children {
            assert_eq!(child.changes().len(), 16);
        }
    });
}
