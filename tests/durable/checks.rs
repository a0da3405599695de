//! What must hold when antiphon has been killed, started again, and has brought its children up to date (the invariants of
//! `mirror.rs`, as the children see them).

use std::collections::HashSet;

use crate::recorder::REFUSED;
use crate::support::client;
use crate::world::{NAMES, World};
use crate::writers::is_once;

/// Of what was accepted, the last are asked for.
const FOLLOWED: usize = 20;

impl World {
    /// Everything; then begins anew with nothing.
    pub(crate) fn check(&self) {
        let lists: Vec<Vec<String>> = self.children.iter().map(|child| std::mem::take(&mut *child.taken())).collect();
        let firsts: Vec<Vec<&str>> = lists.iter().map(|list| self.first_deliveries(list)).collect();
        for (name, list) in NAMES.iter().zip(&firsts).skip(1) {
            let differs = list.iter().zip(&firsts[0]).position(|(one, other)| one != other);
            assert!(
                *list == firsts[0],
                "{}: {name} has {} changes and a has {}, first difference at {differs:?}",
                self.story,
                list.len(),
                firsts[0].len()
            );
        }
        let all: HashSet<&str> = firsts[0].iter().copied().collect();
        let told = std::mem::take(&mut *self.told.answers());
        for target in told.done.iter().chain(&told.refused).chain(told.accepted.iter().map(|(target, _)| target)) {
            assert!(all.contains(&**target), "{}: {target} was acknowledged and is lost", self.story);
        }
        for target in &told.not_taken {
            assert!(!all.contains(&**target), "{}: {target} was refused by us and carried out", self.story);
        }
    }

    /// What was accepted has come to an end where its client was told to ask.
    pub(crate) fn follow_accepted(&self) {
        let accepted: Vec<(String, String)> =
            self.told.answers().accepted.iter().rev().take(FOLLOWED).cloned().collect();
        for (target, url) in accepted {
            let answer = client::get(self.proxy.port, &url).expect("an answer");
            let says = |state: &str| answer.text().contains(&format!("\"state\":\"{state}\""));
            let ended = if target.contains(REFUSED) { says("refused") } else { says("done") };
            assert!(answer.status() == 200 && (ended || says("forgotten")), "{}: {target}: {answer}", self.story);
        }
    }

    /// Without what was sent again, which may stand next to its first delivery only, and never for what goes once.
    fn first_deliveries<'a>(&self, list: &'a [String]) -> Vec<&'a str> {
        let mut firsts: Vec<&str> = Vec::with_capacity(list.len());
        let mut seen = HashSet::with_capacity(list.len());
        for target in list {
            if seen.insert(target.as_str()) {
                firsts.push(target);
                continue;
            }
            assert_eq!(firsts.last(), Some(&target.as_str()), "{}: sent again behind a later change", self.story);
            assert!(!is_once(target), "{}: {target} was sent twice", self.story);
        }
        firsts
    }
}
