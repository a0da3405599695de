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
