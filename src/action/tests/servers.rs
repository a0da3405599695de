//! What servers would make of a request, against what we make of it.
//!
//! The servers here are slow and simple, and disagree with each other: one splits at semicolons, one stops at a NUL,
//! one trims, one takes the last of two actions, one never looks at the body, one takes LF for CRLF. Whatever octets
//! are sent, if we say *read* then no server may find an action that changes something; if we say *change* then none
//! may find one that must not wait, or that is refused.

use proptest::prelude::*;

use super::*;

/// How one server reads.
#[derive(Clone, Copy, Debug)]
struct Server(u16);

impl Server {
    const COUNT: u16 = 1 << 9;

    const fn says(self, bit: u16) -> bool {
        self.0 & (1 << bit) != 0
    }
    const fn splits_at_semicolons(self) -> bool {
        self.says(0)
    }
    const fn knows_queries(self) -> bool {
        self.says(1)
    }
    const fn takes_the_last(self) -> bool {
        self.says(2)
    }
    const fn trims(self) -> bool {
        self.says(3)
    }
    const fn stops_at_nul(self) -> bool {
        self.says(4)
    }
    const fn reads_lines(self) -> bool {
        self.says(5)
    }
    const fn reads_bodies(self) -> bool {
        self.says(6)
    }
    const fn resolves_dots(self) -> bool {
        self.says(7)
    }
    const fn prefers_the_body(self) -> bool {
        self.says(8)
    }

    fn decode(self, raw: &str) -> String {
        let mut octets = Vec::new();
        let mut rest = raw.as_bytes();
        while let Some((first, more)) = rest.split_first() {
            let pair = more.get(..2).and_then(|two| std::str::from_utf8(two).ok());
            match (first, pair.and_then(|two| u8::from_str_radix(two, 16).ok())) {
                (b'%', Some(octet)) => {
                    octets.push(octet);
                    rest = &more[2..];
                }
                (octet, _) => {
                    octets.push(if *octet == b'+' { b' ' } else { *octet });
                    rest = more;
                }
            }
        }
        let mut text = String::from_utf8_lossy(&octets).into_owned();
        if self.stops_at_nul() {
            text.truncate(text.find('\0').unwrap_or(text.len()));
        }
        if self.trims() {
            text = text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '/' | '?')).to_owned();
        }
        // By Unicode's rules, which is more than ASCII's.
        text.to_uppercase()
    }

    fn pairs(self, text: &str, is_body: bool) -> Vec<(String, String)> {
        text.split(|c| match c {
            '&' => true,
            ';' => self.splits_at_semicolons(),
            '\r' | '\n' => is_body && self.reads_lines(),
            _ => false,
        })
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (self.decode(name), self.decode(value)))
        .collect()
    }

    fn target(self, target: &str) -> Vec<(String, String)> {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) if self.knows_queries() => (path, query),
            _ => (target.strip_prefix("/?").map_or(target, |_| "/"), target.strip_prefix("/?").unwrap_or("")),
        };
        let mut path = path.to_owned();
        if self.resolves_dots() {
            let mut kept = Vec::new();
            for segment in path.split('/').skip(1) {
                match segment.replace("%2e", ".").replace("%2E", ".").as_str() {
                    "." => {}
                    ".." => drop(kept.pop()),
                    _ => kept.push(segment),
                }
            }
            path = format!("/{}", kept.join("/"));
        }
        let mut all = self.pairs(path.strip_prefix('/').unwrap_or(&path), false);
        all.extend(self.pairs(query, false));
        all
    }

    /// A body in parts, cut as loosely as anybody does.
    fn parts(self, body: &str) -> Vec<(String, String)> {
        let body = if self.reads_lines() { body.replace("\r\n", "\n").replace('\n', "\r\n") } else { body.to_owned() };
        let mut found = Vec::new();
        for piece in body.split("--B").skip(1) {
            let Some((head, content)) = piece.split_once("\r\n\r\n") else { continue };
            let Some((_, name)) = head.split_once("name=") else { continue };
            let name: String = name.trim_matches('"').split(['"', ';', '\r', '\n']).next().unwrap_or("").to_owned();
            let content = content.strip_suffix("\r\n").unwrap_or(content);
            found.push((self.decode(&name), self.decode(content)));
        }
        found
    }

    /// The action that this server runs, and all parameters that it sees.
    fn runs(self, target: &str, parts: bool, body: &str) -> (Option<String>, Vec<String>) {
        let mut all = self.target(target);
        if self.reads_bodies() {
            let more = if parts { self.parts(body) } else { self.pairs(body, true) };
            match self.prefers_the_body() {
                true => drop(all.splice(0..0, more)),
                false => all.extend(more),
            }
        }
        let mut actions = all.iter().filter(|(name, _)| matches!(name.as_str(), "ACTION" | "A"));
        let action = if self.takes_the_last() { actions.next_back() } else { actions.next() };
        (action.map(|(_, value)| value.clone()), all.iter().map(|(name, _)| name.clone()).collect())
    }
}

/// What an action does, by a table that anybody can check. Anything else is an error at the server.
fn truly(action: Option<&str>, parameters: &[String]) -> Class {
    let stores = parameters.iter().any(|name| matches!(name.as_str(), "DELETE" | "STATE" | "STORESTATE"));
    match action {
        Some("USERADD") => Class::Change,
        Some("QUERY") if stores => Class::Change,
        Some("CATEGORYMOVE") => Class::LiveChange,
        Some("SHUTDOWN") => Class::Refuse,
        _ => Class::Read,
    }
}

const fn strength(class: Class) -> u8 {
    match class {
        Class::Read => 0,
        Class::Change => 1,
        Class::LiveChange => 2,
        Class::Refuse => 3,
    }
}

fn check(target: &str, kind: Option<&str>, body: Option<&str>) {
    let refused = vec![Rule::aci("Shutdown", Class::Refuse).expect("rule")];
    // The most careless setting: then nothing but our reading stands between a change and a single child.
    let rules = Rules::new(Dialect::Aci, RuleSet::Idol, refused, Class::Read).expect("rules");
    let asked = asked("POST", target, kind, body.map(str::as_bytes));
    let Ok(decision) = decided(&rules, &asked) else { return };
    let parts = kind.is_some_and(|kind| kind.starts_with("multipart"));
    // Behind a change, a body that is no form is carried to all alike.
    let opaque = kind == Some("application/json") && decision.class != Class::Read;
    for server in (0..Server::COUNT).map(Server).filter(|server| !(opaque && server.reads_bodies())) {
        let (action, parameters) = server.runs(target, parts, body.unwrap_or_default());
        let truth = truly(action.as_deref(), &parameters);
        assert!(
            strength(truth) <= strength(decision.class),
            "{decision} was said of {target:?} {kind:?} {body:?}, but {server:?} runs {action:?} with {parameters:?}"
        );
    }
}

fn text(pieces: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(pieces), 0..9).prop_map(|list| list.concat())
}

const PAIRS: &[&str] = &[
    "action=Query",
    "a=Query",
    "action=UserAdd",
    "A=USERADD",
    "action=CategoryMove",
    "a=Shutdown",
    "action=",
    "a=",
    "%61ction=UserAdd",
    "act%69on=Query",
    "%2561ction=UserAdd",
    "Text=x",
    "Delete=1",
    "St%61te",
    "StoreState=x",
    "Query",
    "UserAdd",
    "User%41dd",
    "action",
    "a",
    "=",
    "&",
    "&",
    "&",
    "?",
    ";",
    "/",
    "\\",
    "/..",
    "..",
    "/.",
    "%2e",
    "%2f",
    "%00",
    "%",
    "%0a",
    "+",
    "%20",
    " ",
    "#",
    "\r\n",
    "\n",
    "\r",
    "\t",
    "\u{131}",
    "act\u{131}on=UserAdd",
    "x",
    "%c4%b1",
    "%ff",
    "\u{17f}tate",
    "\u{a0}action=UserAdd",
    "\u{a0}",
    "%26",
    "%3d",
];

const PARTS: &[&str] = &[
    "--B\r\n",
    "--B\r\n",
    "--B--\r\n",
    "--B\n",
    "\r\n--B\r\n",
    "\r\n--B--\r\n",
    "\r\n--B--",
    "--BB\r\n",
    "\n--B\n",
    "Content-Disposition: form-data; name=\"action\"\r\n\r\n",
    "Content-Disposition: form-data; name=a\r\n\r\n",
    "Content-Disposition: form-data; name=\"x\"\r\n\r\n",
    "Content-Disposition: form-data; name=Delete\r\n\r\n",
    "Content-Disposition: form-data; filename=\"y; name=action\"; name=x\r\n\r\n",
    "content-disposition: x; name=\"A\"",
    "; filename=y",
    "\r\n\r\n",
    "\r\n",
    "\n",
    "Query",
    "UserAdd",
    "UserAdd",
    "CategoryMove",
    "%41",
    "+",
    "\0",
    "x",
    "Content-Type: text/plain\r\n",
    "\r\n x",
    "\"",
    "\\\"",
];

/// A part, mostly whole.
const WHOLE_PARTS: &[&str] = &[
    "--B\r\nContent-Disposition: form-data; name=\"action\"\r\n\r\nQuery\r\n",
    "--B\r\nContent-Disposition: form-data; name=\"action\"\r\n\r\nUserAdd\r\n",
    "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nCategoryMove\r\n",
    "--B\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\ny\r\n",
    "--B\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\ny\n",
    "--B\r\nContent-Disposition: form-data; name=\"State\"\r\n\r\n\r\n",
    "--B--\r\n",
    "--B--",
    "\r\n",
    "\n",
    "--B",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn of_targets_and_forms(
        target in text(PAIRS),
        body in prop::option::of(text(PAIRS)),
        kind in prop::sample::select(&[None, Some("text/plain"), Some("application/json")][..]),
    ) {
        check(&format!("/{target}"), kind, body.as_deref());
        check(&format!("/action=Query&{target}"), kind, body.as_deref());
        check(&format!("/?{target}"), kind, body.as_deref());
    }

    #[test]
    fn of_parts(body in text(PARTS), whole in text(WHOLE_PARTS), target in text(PAIRS)) {
        let kind = Some("multipart/form-data; boundary=B");
        for body in [&body, &whole, &format!("{whole}--B--\r\n")] {
            check("/", kind, Some(body));
            check("/action=Query", kind, Some(body));
            check(&format!("/{target}"), kind, Some(body));
        }
    }

    /// Spelling changes nothing: a name in any case, any of its letters encoded, anywhere among other parameters.
    #[test]
    fn of_spellings(
        action in prop::sample::select(&["Query", "UserAdd", "CategoryMove", "Shutdown", "FooBar"][..]),
        key in prop::sample::select(&["action", "a"][..]),
        flips in prop::collection::vec(any::<bool>(), 24),
        encoded in prop::collection::vec(any::<bool>(), 24),
        before in prop::collection::vec("[xyz]=[a-z%]{0,3}", 0..3),
        after in prop::collection::vec("[xyz]=[a-z/?]{0,3}", 0..3),
        form in 0..4,
    ) {
        let spelled: String = format!("{key}={action}")
            .chars()
            .zip(flips.iter().zip(&encoded))
            .map(|(c, (flip, encode))| {
                let c = if *flip { c.to_ascii_uppercase() } else { c };
                if *encode && c != '=' { format!("%{:02x}", u32::from(c)) } else { c.to_string() }
            })
            .collect();
        let pairs: Vec<String> = before.into_iter().chain([spelled]).chain(after).collect();
        // A question mark in a path ends it for some servers.
        let plain = pairs.join("&").replace('?', "%3f");
        let (target, body) = match form {
            0 => (format!("/{plain}"), None),
            1 => (format!("/?{}", pairs.join("&")), None),
            2 => ("/".to_owned(), Some(pairs.join("&"))),
            _ => ("/x=y".to_owned(), Some(pairs.join("\r\n"))),
        };
        let rules = Rules::new(
            Dialect::Aci,
            RuleSet::Idol,
            vec![Rule::aci("Shutdown", Class::Refuse).expect("rule")],
            Class::Change,
        ).expect("rules");
        let asked = asked("POST", &target, None, body.as_deref().map(str::as_bytes));
        let expected = if action == "FooBar" { Class::Change } else { truly(Some(&action.to_uppercase()), &[]) };
        let decision = decided(&rules, &asked).expect("one reading");
        prop_assert_eq!(decision.class, expected);
        prop_assert_eq!(decision.name.as_str(), action.to_lowercase());
    }
}
