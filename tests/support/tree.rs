//! A folder's content as a value, to compare what servers have on disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Every path below a folder, relative to it, with its octets; `None` is a folder. Neither times nor modes.
pub type Tree = BTreeMap<String, Option<Vec<u8>>>;

/// Reads a folder. What vanishes meanwhile is left out.
pub fn read(root: &Path) -> Tree {
    let mut tree = Tree::new();
    walk(root, "", &mut tree);
    tree
}

fn walk(folder: &Path, prefix: &str, tree: &mut Tree) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), &format!("{name}/"), tree);
            tree.insert(name, None);
        } else if let Ok(octets) = fs::read(entry.path()) {
            tree.insert(name, Some(octets));
        }
    }
}

/// What two folders differ in, a line each; empty when they are identical.
pub fn differences(left: &Tree, right: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, content) in left {
        match right.get(path) {
            None => lines.push(format!("- {path}")),
            Some(other) if other != content => lines.push(format!("! {path}")),
            Some(_) => {}
        }
    }
    lines.extend(right.keys().filter(|path| !left.contains_key(*path)).map(|path| format!("+ {path}")));
    lines
}
