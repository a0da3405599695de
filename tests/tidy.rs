//! The house holds: imports point down, `unsafe` stands in its two files, every file says what it is.
//!
//! The map below is the architecture of `lib.rs`. A module that is not on it fails the test: decide where it belongs,
//! then add it. Code is looked at without comments and strings, word by word; macros are not expanded.

use std::fs;
use std::path::{Path, PathBuf};

/// Modules by layer, the lowest first. A path is longer than a module's name where a part of it stands elsewhere.
const LAYERS: &[(&str, &[&str])] = &[
    ("ground", &["limits", "error", "sync", "time", "crash"]),
    ("pure", &["config", "http", "action", "route", "discovery", "probe", "switchover", "mirror", "journal"]),
    ("edges", &["io", "journal/segment"]),
    ("assembly", &["worker", "control", "client"]),
    ("entry", &["main", "cli", "demo"]),
];

/// Arrows between modules of one layer; within the ground they are free.
const SIDEWAYS: &[(&str, &[&str])] = &[
    ("action", &["http"]),
    ("route", &["action", "probe"]),
    ("mirror", &["action", "route", "probe"]),
    ("journal", &["action", "route", "mirror"]),
    ("config", &["http", "action", "route", "discovery", "probe", "switchover", "mirror", "journal"]),
    ("control", &["worker"]),
    ("main", &["cli", "demo"]),
    ("cli", &["demo"]),
];

/// Where `unsafe` may stand; in the tests that belong to such a file (`buffer/tests.rs`) too.
const UNSAFE: &[&str] = &["src/io/buffer.rs", "src/io/uring.rs"];

#[test]
fn imports_point_down_and_unsafe_stays_at_home() {
    let mut wrong = Vec::new();
    for file in sources("src") {
        wrong.extend(judge(&relative(&file), &read(&file)));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_it_is() {
    let mut silent = Vec::new();
    for directory in ["src", "tests", "benches", "fuzz/fuzz_targets"] {
        silent.extend(
            sources(directory).iter().filter(|file| !opens_with_a_header(&read(file))).map(|file| relative(file)),
        );
    }
    assert!(silent.is_empty(), "these do not open with `//!`: {}", silent.join(", "));
}

/// What is wrong with one file of `src`.
fn judge(path: &str, text: &str) -> Vec<String> {
    let code = code_of(text);
    let words = words(&code);
    let mut wrong = Vec::new();
    let home = path.replace("/tests.rs", ".rs");
    if words.contains(&"unsafe") && !UNSAFE.contains(&home.as_str()) {
        wrong.push(format!("{path}: `unsafe` outside of {}", UNSAFE.join(" and ")));
    }
    let module = module_of(path);
    if module == "lib" {
        // It names every module, and imports none.
        return wrong;
    }
    let Some(own) = place(&module) else {
        wrong.push(format!("{path}: `{module}` is in no layer"));
        return wrong;
    };
    let mut seen = Vec::new();
    for target in targets(&words, &module) {
        if seen.contains(&target) {
            continue;
        }
        let Some(other) = place(&target) else {
            wrong.push(format!("{path}: `{target}` is in no layer"));
            continue;
        };
        if !is_allowed(own, other) {
            let (from, to) = (LAYERS[own.0].0, LAYERS[other.0].0);
            wrong.push(format!("{path}: {} ({from}) may not import {} ({to})", own.1, other.1));
        }
        seen.push(target);
    }
    wrong
}

fn is_allowed(own: (usize, &str), other: (usize, &str)) -> bool {
    let sideways = || SIDEWAYS.iter().any(|(from, to)| *from == own.1 && to.contains(&other.1));
    own.1 == other.1 || other.0 < own.0 || (own.0 == other.0 && (own.0 == 0 || sideways()))
}

/// Layer and module of a path such as `mirror/ring`: the longest entry of the map that it begins with.
fn place(path: &str) -> Option<(usize, &'static str)> {
    let entries =
        LAYERS.iter().enumerate().flat_map(|(layer, (_, modules))| modules.iter().map(move |it| (layer, *it)));
    entries
        .filter(|(_, module)| path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        .max_by_key(|(_, module)| module.len())
}

/// `src/mirror/ring.rs` is `mirror/ring`.
fn module_of(path: &str) -> String {
    path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod").to_owned()
}

/// The modules that paths from the root of the crate lead to: `crate::a::b`, `crate::{a, b::c}`, `antiphon::a` in the
/// binary, and `super::` as often as it takes.
fn targets(words: &[&str], module: &str) -> Vec<String> {
    let depth = module.split('/').count();
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let start = at;
        at += 1;
        let root = match words[start] {
            "crate" => words.get(at) == Some(&"::"),
            "antiphon" => module == "main" && words.get(at) == Some(&"::"),
            "super" if start == 0 || words[start - 1] != "::" => {
                let mut supers = 1;
                while words.get(at) == Some(&"::") && words.get(at + 1) == Some(&"super") {
                    supers += 1;
                    at += 2;
                }
                // From an inline module the same words may lead to less than the root: then they name what is no
                // module of the map, and are passed over.
                supers >= depth
                    && words.get(at) == Some(&"::")
                    && words.get(at + 1).is_some_and(|it| place(it).is_some())
            }
            _ => false,
        };
        if !root {
            continue;
        }
        at += 1;
        if words.get(at) != Some(&"{") {
            found.extend(path_at(words, at));
            continue;
        }
        // A list: the first word after its brace and after each comma of its own level.
        let mut level = 0;
        loop {
            match words.get(at) {
                Some(&"{") => level += 1,
                Some(&"}") => level -= 1,
                None => break,
                _ => {}
            }
            if level == 0 {
                break;
            }
            if level == 1 && matches!(words[at], "{" | ",") {
                found.extend(path_at(words, at + 1));
            }
            at += 1;
        }
    }
    found
}

/// The path that begins at a word: `a::b::C` is `a/b/C`. A macro or an item of the crate's root is no module.
fn path_at(words: &[&str], at: usize) -> Option<String> {
    let is_name = |word: &&&str| word.starts_with(|first: char| first.is_alphabetic() || first == '_');
    let first = words.get(at).filter(is_name).filter(|word| **word != "self")?;
    if words.get(at + 1) == Some(&"!") {
        return None;
    }
    let mut path = (*first).to_owned();
    let mut at = at + 1;
    while words.get(at) == Some(&"::")
        && let Some(word) = words.get(at + 1).filter(is_name)
    {
        path = format!("{path}/{word}");
        at += 2;
    }
    Some(path)
}

/// Names, `::`, and every other visible character by itself.
fn words(code: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if first.is_alphanumeric() || first == '_' => {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            }
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        words.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    words
}

/// The text with a blank for each comment, string and character.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = comment(rest).or_else(|| string(rest, &code)).or_else(|| character(rest));
        match skipped {
            Some(length) => {
                code.push(' ');
                rest = &rest[length..];
            }
            None => {
                code.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    code
}

fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with("/*") {
        return None;
    }
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    Some(rest.len())
}

/// A string, raw or not; `before` is the code so far: a prefix that ends a name (`number"`) is none.
fn string(rest: &str, before: &str) -> Option<usize> {
    if !rest.starts_with('"') && before.ends_with(|last: char| last.is_alphanumeric() || last == '_') {
        return None;
    }
    let body = rest.trim_start_matches(['b', 'c']);
    if let Some(raw) = body.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let open = rest.len() - raw.len() + hashes + 1;
            return Some(rest[open..].find(&end).map_or(rest.len(), |at| open + at + end.len()));
        }
    }
    if !body.starts_with('"') {
        return None;
    }
    let open = rest.len() - body.len() + 1;
    let mut escaped = false;
    for (at, octet) in rest.bytes().enumerate().skip(open) {
        match octet {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

/// A character, which a lifetime is not.
fn character(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    let mut characters = inner.char_indices();
    let (_, first) = characters.next()?;
    if first == '\\' {
        return inner[2..].find('\'').map(|at| at + 4);
    }
    let (at, second) = characters.next()?;
    (second == '\'').then_some(at + 2)
}

fn opens_with_a_header(text: &str) -> bool {
    text.lines().next().is_some_and(|first| first.starts_with("//! ") && first.len() > 10)
}

/// Every `.rs` file below a folder of the repository; none if there is no such folder.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn relative(file: &Path) -> String {
    file.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(file).to_string_lossy().replace('\\', "/")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

// === the judge is judged ===

#[test]
fn bad_imports_are_found() {
    for (path, text) in [
        ("src/http/head.rs", "use crate::io::Chunk;"),
        ("src/http/head.rs", "use crate::{\n    error::Fault,\n    worker::{self, pool::Pool},\n};"),
        ("src/limits.rs", "const A: usize = crate::config::B;"),
        ("src/io/exec.rs", "fn f() { crate::worker::run() }"),
        ("src/io.rs", "use super::worker;"),
        ("src/io/exec.rs", "use super::super::control::run;"),
        ("src/journal.rs", "use crate::journal::segment::Disk;"),
        ("src/probe.rs", "use crate::route::Child;"),
        ("src/http.rs", "use crate::action::Class;"),
        ("src/worker.rs", "use crate::control::Front;"),
        ("src/worker/serve.rs", "let a: &'static str = crate::cli::A;"),
        ("src/demo.rs", "use crate::cli::say;"),
        ("src/route.rs", "pub(in crate::io) fn f() {}"),
        ("src/route.rs", "use crate::novelty::A;"),
        ("src/novelty.rs", ""),
        ("src/action.rs", "unsafe { f() }"),
        ("src/io/uring/setup.rs", "unsafe fn f() {}"),
    ] {
        assert_eq!(judge(path, text).len(), 1, "{path}: {text}");
    }
}

#[test]
fn good_imports_are_not() {
    for (path, text) in [
        ("src/main.rs", "use antiphon::cli;"),
        ("src/cli.rs", "use crate::demo; use crate::control::{self, client::call}; use crate::config::Config;"),
        ("src/control.rs", "use crate::worker::{Worker, self}; use crate::io::{self};"),
        ("src/worker.rs", "mod lane; use lane::Lane; use self::lane::A; pub(crate) use crate::io::Conn;"),
        ("src/io.rs", "//! For crate::worker.\n/* crate::control /* nested */ */ use crate::limits;"),
        ("src/io/buffer.rs", "unsafe { f() } // fine here"),
        ("src/io/buffer/tests.rs", "unsafe { f() }"),
        (
            "src/action.rs",
            "#![deny(unsafe_code)] const A: &str = \"unsafe crate::io\"; const B: &str = r#\"\"crate::io\"\"#;",
        ),
        ("src/route.rs", "let a = '\"'; use crate::probe::Kind; let b = '\\''; let c = b'\"';"),
        ("src/probe.rs", "mod tests { use super::*; use super::{Options}; } crate::words! { A }"),
        ("src/journal/segment.rs", "use crate::journal::Record;"),
        ("src/error.rs", "use crate::limits::A;"),
        ("src/lib.rs", "pub mod io; pub mod worker;"),
    ] {
        assert_eq!(judge(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}

#[test]
fn strings_and_comments_are_no_code() {
    let text = "a /* b */ \"c \\\" d\" e 'f' '\\n' 'g r#\"h\" \"# i b\"j\" // k\nl br\"\\\" m number\" n";
    assert_eq!(words(&code_of(text)), ["a", "e", "'", "g", "i", "l", "m", "number"]);
}

#[test]
fn a_header_is_asked_for() {
    assert!(opens_with_a_header("//! What this is.\n"));
    assert!(!opens_with_a_header("// What this is.\n") && !opens_with_a_header("") && !opens_with_a_header("//!\n"));
}
