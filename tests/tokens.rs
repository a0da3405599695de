//! Tokens of asynchronous actions, on both drivers: the child that issued one is asked about it, and no other, however
//! the request is written; when it is away the client is told its name.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the rules of the program's own threads; a test waits for another process"
)]

mod support;

use support::aci::{AciServer, base64};
use support::client::{self, Ask};
use support::message::{Request, Response};
use support::proxy::{GROUP, Proxy, Setup, assert_says, text};
use support::scripted::{Scripted, Step};
use support::{Driver, eventually, for_each_driver};

const NAMES: [&str; 3] = ["a", "b", "c"];
const FORM: Option<&str> = Some("application/x-www-form-urlencoded");
const PARTS: Option<&str> = Some("multipart/form-data; boundary=B");

/// Three servers and a front.
struct World {
    children: [AciServer; 3],
    proxy: Proxy,
}

impl World {
    fn start(driver: Driver, more: impl Fn(Setup) -> Setup) -> Self {
        let children = AciServer::several();
        let setup = Setup::new(driver, "aci", "idol").probe("request", text("GET /action=GetPid"));
        let setup = NAMES.iter().zip(&children).fold(setup, |setup, (name, child)| setup.child(name, child.port()));
        let proxy = Proxy::start(&more(setup));
        for name in NAMES {
            proxy.wait_child_state(name, "up");
        }
        Self { children, proxy }
    }

    #[track_caller]
    fn ask(&self, target: &str) -> Response {
        client::get(self.proxy.port, target).unwrap_or_else(|why| panic!("{target}: {why}"))
    }

    /// A token of each child.
    #[track_caller]
    fn tokens(&self) -> [String; 3] {
        eventually("a token of each", || {
            let answer = self.ask("/action=Summarize&Synchronous=false");
            assert_eq!(answer.status(), 200, "{answer}");
            let tokens = [0, 1, 2].map(|child| self.children[child].tokens().pop());
            let [Some(first), Some(second), Some(third)] = tokens else { return None };
            Some([first, second, third])
        })
    }

    /// What each child has been asked about queues.
    fn asked(&self) -> [Vec<Request>; 3] {
        let is_queue = |request: &Request| {
            let text = [request.head.target.as_slice(), b"\n", &request.body].concat();
            String::from_utf8_lossy(&text).to_ascii_lowercase().contains("queueinfo")
        };
        [0, 1, 2].map(|child| self.children[child].reads().into_iter().filter(is_queue).collect())
    }
}

/// Method, target, type and body of a `QueueInfo` in every form that clients use.
fn forms(parameters: &str, token: &str) -> Vec<(&'static str, String, Option<&'static str>, String)> {
    let part =
        |name: &str, value: &str| format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    let parts: String = parameters
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .chain([("Token", token)])
        .map(|(name, value)| part(name, value))
        .collect();
    let lines = format!("action=QueueInfo&{parameters}&Token={token}");
    let encoded = token.replace('=', "%3D");
    vec![
        ("GET", format!("/action=QueueInfo&{parameters}&Token={token}"), None, String::new()),
        ("GET", format!("/a=queueinfo&token={encoded}&{parameters}"), None, String::new()),
        ("GET", format!("/?{parameters}&Token={token}&Action=QUEUEINFO"), None, String::new()),
        ("GET", format!("/?Action=QueueInfo&%54oken={encoded}&{parameters}"), None, String::new()),
        ("POST", "/".into(), Some("text/plain"), format!("Action=QueueInfo&{parameters}&Token={encoded}")),
        ("POST", "/".into(), Some("text/plain"), lines.replace('&', "\r\n")),
        ("POST", "/".into(), FORM, lines.replace('&', "\r")),
        ("POST", format!("/a=QueueInfo&{parameters}"), FORM, format!("Token={token}")),
        ("POST", format!("/a=QueueInfo&Token={token}"), FORM, parameters.to_owned()),
        ("POST", "/?Action=QueueInfo".into(), PARTS, format!("{parts}--B--\r\n")),
        ("POST", "/".into(), PARTS, format!("{}{parts}--B--\r\n", part("action", "QueueInfo"))),
        ("GET", "/a=QueueInfo".into(), FORM, format!("{parameters}&Token={token}")),
    ]
}

fn ask_of<'a>(form: &'a (&'static str, String, Option<&'static str>, String)) -> Ask<'a> {
    let (method, target, kind, body) = form;
    let ask = kind.iter().fold(Ask::new(method, target), |ask, kind| ask.field("Content-Type", *kind));
    if body.is_empty() { ask } else { ask.body(body.as_bytes()) }
}

#[test]
fn a_token_is_asked_of_the_child_that_issued_it() {
    for_each_driver(|driver| {
        let world = World::start(driver, |setup| setup);
        let tokens = world.tokens();
        let filters = "QueueName=SUMMARIZE&QueueAction=getStatus&State=finished&Sort-By=time&MaxResults=6";
        for (child, token) in tokens.iter().enumerate() {
            for form in forms(filters, token) {
                let before = world.asked();
                let answer = ask_of(&form).at(world.proxy.port).unwrap_or_else(|why| panic!("{form:?}: {why}"));
                assert_eq!(answer.status(), 200, "{form:?}: {answer}");
                let asked = world.asked();
                for other in 0..3 {
                    assert_eq!(asked[other].len(), before[other].len() + usize::from(other == child), "{form:?}");
                }
                let came = asked[child].last().expect("just asked");
                assert_eq!((came.path(), &came.body[..]), (form.1.clone(), form.3.as_bytes()), "as it came");
            }
            let answer = world.ask(&format!("/a=QueueInfo&QueueName=SUMMARIZE&QueueAction=getStatus&Token={token}"));
            assert_says(&answer.text(), &[&format!("<token>{token}</token>")]);
        }
        assert!(world.children.iter().all(|child| child.changes().is_empty()));
        // Without a token each child can say something, and each is asked in turn.
        let before = world.asked().map(|asked| asked.len());
        for _ in 0..9 {
            assert_eq!(world.ask("/a=QueueInfo&QueueName=SUMMARIZE&QueueAction=queueStatus&Token=").status(), 200);
        }
        assert!(world.asked().iter().zip(before).all(|(asked, before)| asked.len() > before), "spread over all");
    });
}

#[test]
fn what_changes_a_queue_reaches_the_issuer_and_nobody_else() {
    for_each_driver(|driver| {
        let world = World::start(driver, |setup| setup.group("policy", text("failover")));
        // Under failover all tokens are the primary's, so the others are asked to issue theirs in turn.
        let issue = |name: &str| {
            let target = format!("/action=EngineManagement&EngineAction=SetPrimaryEngine&EngineName={name}");
            assert_eq!(world.ask(&target).status(), 200);
            assert_eq!(world.ask("/action=Summarize&Synchronous=false").status(), 200);
        };
        NAMES.iter().rev().for_each(|name| issue(name));
        let tokens = world.tokens();
        for action in ["cancel", "changePriority", "pause", "resume", "duplicate", "somethingNew"] {
            for (child, token) in tokens.iter().enumerate() {
                for form in forms(&format!("QueueName=SUMMARIZE&QueueAction={action}&Priority=1"), token) {
                    let before = world.asked();
                    let answer = ask_of(&form).at(world.proxy.port).unwrap_or_else(|why| panic!("{form:?}: {why}"));
                    assert_eq!(answer.status(), 200, "{form:?}: {answer}");
                    assert_eq!(answer.field("Antiphon-Sequence"), None, "no change of the group");
                    let asked = world.asked();
                    for other in 0..3 {
                        assert_eq!(asked[other].len(), before[other].len() + usize::from(other == child), "{form:?}");
                    }
                }
            }
        }
        assert_says(
            &world.ask("/a=EngineManagement&EngineAction=ShowStatus").text(),
            &["<primary_engine>0</primary_engine>"],
        );
    });
}

/// The issuer reads the request and goes away without an answer, each time.
#[test]
fn nothing_that_changes_a_queue_is_sent_twice() {
    for_each_driver(|driver| {
        let close = || vec![Step::Request, Step::Close];
        let children = [Scripted::start(close()), Scripted::start(close())];
        let ports = [children[0].port(), children[1].port()];
        let setup = Setup::new(driver, "aci", "idol").child("a", ports[0]).child("b", ports[1]);
        let proxy = Proxy::start(&setup);
        let requests =
            |child: usize| children[child].records().iter().map(|record| record.requests.len()).sum::<usize>();
        let token = base64(format!("127.0.0.1:{}:FETCH:7", ports[1]).as_bytes());
        let cancel = format!("/action=QueueInfo&QueueName=FETCH&QueueAction=cancel&Token={token}");
        let answer = client::get(proxy.port, &cancel).expect("an answer");
        assert_eq!(answer.status(), 502, "{answer}");
        assert_says(&answer.text(), &["<errorcode>CHILD_CLOSED</errorcode>", "<action>QUEUEINFO</action>"]);
        assert_eq!((requests(0), requests(1)), (0, 1), "once, and to the issuer");
        // From now on it answers. Each goes on a connection of its own, which cannot have ended unseen.
        proxy.wait_child_state("b", "up");
        for _ in 0..3 {
            assert_eq!(client::get(proxy.port, &cancel).expect("an answer").status(), 200);
        }
        let records = children[1].records();
        assert!(records.iter().all(|record| record.requests.len() <= 1), "{records:?}");
        assert_eq!((requests(0), requests(1)), (0, 4));
    });
}

#[test]
fn when_the_issuer_is_away_nobody_else_is_asked() {
    for_each_driver(|driver| {
        let mut world = World::start(driver, |setup| setup);
        let tokens = world.tokens();
        let look = |token: &str| format!("/a=QueueInfo&QueueName=SUMMARIZE&QueueAction=getStatus&Token={token}");
        let cancel = |token: &str| format!("/a=QueueInfo&QueueName=SUMMARIZE&QueueAction=cancel&Token={token}");
        let assert_away = |world: &World, target: &str, name: &str| {
            let answer = world.ask(target);
            assert_eq!(answer.status(), 503, "{answer}");
            assert_eq!(answer.field("Antiphon-Missing").as_deref(), Some(name), "{answer}");
            assert!(answer.field("Retry-After").is_some(), "{answer}");
            let missing = format!("Missing: {name}.");
            assert_says(&answer.text(), &["<errorcode>ISSUER_AWAY</errorcode>", &missing]);
        };
        let asked = |world: &World| world.asked().map(|asked| asked.len());
        let before = asked(&world);
        // The first to ask is the one who finds it gone.
        world.children[1].stop();
        assert_away(&world, &cancel(&tokens[1]), "b");
        assert_away(&world, &look(&tokens[1]), "b");
        // The operator's word: not even asked.
        assert_eq!(world.ask("/action=EngineManagement&EngineAction=PowerDown&EngineName=c").status(), 200);
        assert_away(&world, &look(&tokens[2]), "c");
        assert_away(&world, &cancel(&tokens[2]), "c");
        assert_eq!(asked(&world), before, "nobody was asked");
        assert_eq!(world.ask(&look(&tokens[0])).status(), 200, "the third has its own");

        world.children[1].start_again();
        world.proxy.wait_child_state("b", "up");
        assert_eq!(world.ask("/action=EngineManagement&EngineAction=PowerUp&EngineName=c").status(), 200);
        world.proxy.wait_child_state("c", "up");
        for token in &tokens {
            assert_says(&world.ask(&look(token)).text(), &[token]);
        }
    });
}

#[test]
fn a_child_goes_by_its_aliases_too() {
    for_each_driver(|driver| {
        let alias = r#"["Content-2.example:9100", "[2001:DB8::2]:9100"]"#;
        let world = World::start(driver, |setup| setup.of_child("alias", alias));
        for address in ["content-2.example:9100", "CONTENT-2.Example:9100", "2001:db8::2:9100", "[2001:db8:0::2]:9100"]
        {
            let token = base64(format!("{address}:SUMMARIZE:1").as_bytes());
            for action in ["getStatus", "cancel"] {
                let before = world.asked()[2].len();
                let answer = world.ask(&format!("/a=QueueInfo&QueueAction={action}&Token={token}"));
                assert_eq!(answer.status(), 200, "{address}: {answer}");
                assert_eq!(world.asked()[2].len(), before + 1, "{address}");
            }
        }
        // What it writes into its own.
        world.children[2].advertise("content-2.example:9100");
        let token = &world.tokens()[2];
        assert_says(&world.ask(&format!("/a=QueueInfo&QueueAction=getStatus&Token={token}")).text(), &[token]);
    });
}

#[test]
fn a_token_that_leads_nowhere_is_refused_with_what_to_do() {
    for_each_driver(|driver| {
        let world = World::start(driver, |setup| setup);
        // The sample of the product's own documents.
        let stranger = "MTAuMi4xMDUuMzQ6MTIzNDpGRVRDSDoxNDAyOTU3MzY4";
        let known = world.tokens()[0].clone();
        for action in ["getStatus", "cancel"] {
            let answer = world.ask(&format!("/a=QueueInfo&QueueName=FETCH&QueueAction={action}&Token={stranger}"));
            assert_eq!(answer.status(), 404, "{answer}");
            let advice = format!(
                "It names 10.2.105.34:1234. If that is one of the children, add alias = [\"10.2.105.34:1234\"] to its \
                 [[group.{GROUP}.child]]."
            );
            assert_says(&answer.text().replace("&quot;", "\""), &["<errorcode>TOKEN_UNKNOWN</errorcode>", &advice]);
        }
        for (rest, status, code) in [
            (format!("QueueAction=getStatus&Token={}", &stranger[1..]), 400, "TOKEN_INVALID"),
            (format!("QueueAction=getStatus&Token={}-", &stranger[..43]), 400, "TOKEN_INVALID"),
            ("QueueAction=getStatus&Token=%00".into(), 400, "TOKEN_INVALID"),
            (format!("QueueAction=cancel&Token={known}&token={stranger}"), 400, "ACTION_AMBIGUOUS"),
            ("QueueAction=cancel".into(), 400, "TOKEN_MISSING"),
            ("QueueAction=pause&Token=".into(), 400, "TOKEN_MISSING"),
        ] {
            let answer = world.ask(&format!("/a=QueueInfo&QueueName=FETCH&{rest}"));
            assert_eq!(answer.status(), status, "{rest}: {answer}");
            assert_says(&answer.text(), &[&format!("<errorcode>{code}</errorcode>")]);
        }
        let told = world.proxy.command(&["check", "--classify", "/a=QueueInfo&QueueAction=cancel"]);
        assert_says(&told.text(), &["token_missing"]);
        assert!(world.asked().iter().all(Vec::is_empty), "nobody was asked");
        // What a token means to other actions is their own affair.
        assert_eq!(world.ask(&format!("/a=Query&Token={stranger}")).status(), 200);
    });
}
