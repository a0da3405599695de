//! Configurations and what is said of them: each file of `tests/cases/config/bad` with its errors, to the letter, and
//! each of `good` with its summary.
//!
//! After a change of wording, `ANTIPHON_BLESS=1 cargo test --test config` writes the texts anew; read the difference
//! before you keep it.

use std::fs;
use std::path::{Path, PathBuf};

use antiphon::config::Config;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/config");

#[test]
fn bad_files_get_these_errors() {
    each_file("bad", |file, text| {
        let name = file.file_name().expect("a file has a name").to_string_lossy();
        let errors = Config::parse(text, &name).expect_err(&format!("{name} is taken for good"));
        format!("{errors}\n")
    });
}

#[test]
fn good_files_amount_to_this() {
    each_file("good", |file, text| match Config::parse(text, &file.to_string_lossy()) {
        Ok(config) => config.summary(),
        Err(errors) => panic!("{errors}"),
    });
}

/// What the README shows can be copied, and its list of keys tells the defaults.
#[test]
fn the_readme_is_true() {
    let readme = include_str!("../README.md");
    let listings: Vec<&str> = readme.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let whole: Vec<&&str> =
        listings.iter().filter(|text| text.contains("[[listen]]\naddress") || text.contains("[[listen]]  ")).collect();
    assert_eq!(whole.len(), 2, "the example, and the list of keys");
    for text in &whole {
        Config::parse(text, "README.md").unwrap_or_else(|errors| panic!("{errors}"));
    }
    let keys = Config::parse(whole[1], "README.md").expect("just read");
    let bare = "[[listen]]\naddress = \"0.0.0.0:8080\"\ngroup = \"main\"\n[[group.main.child]]\nname = \"a\"\naddress = \"127.0.0.1:9001\"\n";
    let defaults = Config::parse(bare, "bare").expect("the least there can be");
    assert_eq!(keys.timeouts, defaults.timeouts);
    assert_eq!(keys.limits, defaults.limits);
    assert_eq!(keys.workers, defaults.workers);
    assert_eq!(keys.log, defaults.log);
    assert_eq!(keys.admin.socket, defaults.admin.socket);
    assert_eq!(keys.admin.clients, defaults.admin.clients);
    let (told, meant) = (&keys.groups[0], &defaults.groups[0]);
    assert_eq!(
        (told.dialect, told.rule_set, told.policy, told.ack),
        (meant.dialect, meant.rule_set, meant.policy, meant.ack)
    );
    assert_eq!(
        (told.write_deadline, told.live_wait, told.read_gate, told.read_wait),
        (meant.write_deadline, meant.live_wait, meant.read_gate, meant.read_wait)
    );
    assert_eq!(told.probe, meant.probe);
    assert_eq!(told.timeouts, meant.timeouts);
    assert_eq!(told.children[0].weight, meant.children[0].weight);
    assert_eq!((told.children[0].slots, &told.cost), (meant.children[0].slots, &meant.cost));
}

/// What is dumped is read as the same, and has every key of the README's list.
#[test]
fn a_dump_is_the_same_configuration() {
    let readme = include_str!("../README.md");
    let keys = readme.split("```toml\n").filter_map(|rest| rest.split("```").next());
    let keys = keys.filter(|text| text.contains("[[listen]]  ")).last().expect("the list of keys");
    let cases = files("good").into_iter().map(|file| fs::read_to_string(file).expect("a case can be read"));
    for text in cases.chain([keys.to_owned()]) {
        let config = Config::parse(&text, "file").unwrap_or_else(|errors| panic!("{errors}"));
        let dump = config.dump();
        let again = Config::parse(&dump, "dump").unwrap_or_else(|errors| panic!("{errors}\n{dump}"));
        // The rules are compared as written; their numbers are the same all the same.
        let (again_all, all) = (format!("{again:#?}"), format!("{config:#?}"));
        let unlike: Vec<_> = again_all.lines().zip(all.lines()).filter(|(one, other)| one != other).collect();
        assert!(unlike.is_empty() && again_all.len() == all.len(), "{unlike:?}\n{dump}");
        assert_eq!(again.dump(), dump);
    }
    let dump = Config::parse(keys, "README.md").expect("a good one").dump();
    let key_of = |line: &str| line.split_once(" = ").map(|(key, _)| key.to_owned());
    let dumped: Vec<String> = dump.lines().filter_map(key_of).collect();
    for line in keys.lines().filter(|line| !line.trim_start().starts_with('#')) {
        if let Some(key) = key_of(line.trim_start()) {
            assert!(dumped.contains(&key), "no `{key}` in the dump:\n{dump}");
        }
    }
}

/// A file that is cut anywhere is refused or taken, and never a panic.
#[test]
fn no_cut_of_a_file_panics() {
    for directory in ["good", "bad"] {
        for file in files(directory) {
            let text = fs::read_to_string(&file).expect("a case can be read");
            for end in (0..text.len()).step_by(3).filter(|end| text.is_char_boundary(*end)) {
                if let Err(errors) = Config::parse(&text[..end], "cut") {
                    assert!(!errors.to_string().is_empty());
                }
            }
        }
    }
}

fn each_file(directory: &str, say: impl Fn(&Path, &str) -> String) {
    let mut wrong = Vec::new();
    for file in files(directory) {
        let text = fs::read_to_string(&file).expect("a case can be read");
        let found = say(&file, &text);
        let expected_file = file.with_extension("txt");
        if std::env::var_os("ANTIPHON_BLESS").is_some_and(|value| !value.is_empty()) {
            fs::write(&expected_file, &found).expect("a case can be written");
        }
        let expected = fs::read_to_string(&expected_file).unwrap_or_default();
        if found != expected {
            wrong.push(format!("=== {}\n--- expected\n{expected}--- found\n{found}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn files(directory: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new(CASES).join(directory)).expect("the cases are there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(!files.is_empty(), "no cases in {directory}");
    files
}
