//! The one child that can answer: the one that issued a token.
//!
//! No policy chooses here, and nothing moves: no other child knows the token. Whether that child may be asked is the
//! same as for any read: it answers, the operator wants it, it has applied everything up to the floor.

use super::child::{Admin, Child, Standing};
use super::cost::Label;
use super::group::GroupTable;
use super::policy::{Choice, NoChoice};
use crate::probe::Kind;
use crate::sync::Ordering;
use crate::time::Time;

impl GroupTable {
    /// The index of the child that calls itself so in its tokens: `host:port`, spelled as in a configuration.
    #[must_use]
    pub fn issuer(&self, address: &str) -> Option<usize> {
        self.children.iter().position(|child| child.is_known_as(address))
    }
}

/// Takes the child with this index, if it is eligible at `floor`; counts the read as in flight.
///
/// # Errors
/// [`NoChoice::NoneCurrent`] if it is only behind; [`NoChoice::AllDown`].
pub fn only(group: &GroupTable, index: usize, label: &Label, floor: u64, now: Time) -> Result<Choice, NoChoice> {
    let child = &group.children[index];
    judge(child, floor)?;
    child.counters.requests.fetch_add(1, Ordering::Relaxed);
    Ok(Choice { index, in_flight: group.dispatch(child, label, now) })
}

fn judge(child: &Child, floor: u64) -> Result<(), NoChoice> {
    if child.health().state().kind() == Kind::Down || child.admin() != Admin::Online {
        return Err(NoChoice::AllDown);
    }
    match child.standing() {
        Standing::Live if child.applied() >= floor => Ok(()),
        Standing::Live | Standing::Replaying => Err(NoChoice::NoneCurrent),
        Standing::Diverged | Standing::NeedsReseed => Err(NoChoice::AllDown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::policy::Policy;
    use crate::route::testing::{at, group};
    use crate::sync::Arc;

    #[test]
    fn it_is_found_by_its_address_and_by_its_aliases() {
        let child = |name, index, host, aliases: &[&str]| {
            let aliases = aliases.iter().map(|alias| Box::from(*alias)).collect::<Vec<Box<str>>>().into();
            Arc::new(Child::new(name, index, host, 100, None).with_aliases(aliases))
        };
        let mut group = group(Policy::Failover, &[1]);
        group.children =
            vec![child("a", 0, "10.0.0.1:9100", &[]), child("b", 1, "10.0.0.2:9100", &["content-1:9100", "[::1]:7"])];
        assert_eq!(group.issuer("10.0.0.1:9100"), Some(0));
        assert_eq!(group.issuer("10.0.0.2:9100"), Some(1));
        assert_eq!((group.issuer("content-1:9100"), group.issuer("[::1]:7")), (Some(1), Some(1)));
        assert_eq!((group.issuer("10.0.0.1:9101"), group.issuer("content-1")), (None, None));
    }

    #[test]
    fn it_is_asked_only_while_it_may_be_read_from() {
        let group = group(Policy::Failover, &[1, 0]);
        let outcome = |floor| only(&group, 1, &Label::NONE, floor, at(1)).map(|choice| choice.index);
        assert_eq!(outcome(0), Ok(1), "a last resort is an issuer like any other");
        assert_eq!(group.primary(), 0, "and does not become the primary by it");
        assert_eq!(group.children[1].in_flight(), 0);
        assert_eq!(outcome(5), Err(NoChoice::NoneCurrent));
        group.children[1].confirm_applied(5);
        assert_eq!(outcome(5), Ok(1));
        group.doubt(1);
        assert_eq!(outcome(5), Ok(1), "a suspect may be tried");
        group.kill(1);
        assert_eq!(outcome(5), Err(NoChoice::AllDown));
        group.revive(1);
        for (standing, why) in [
            (Standing::Replaying, NoChoice::NoneCurrent),
            (Standing::Diverged, NoChoice::AllDown),
            (Standing::NeedsReseed, NoChoice::AllDown),
        ] {
            group.children[1].set_standing(standing, "", at(3));
            assert_eq!(outcome(0), Err(why));
        }
        group.children[1].set_standing(Standing::Live, "", at(3));
        for admin in [Admin::Offline, Admin::Draining] {
            group.children[1].set_admin(admin, "", at(4));
            assert_eq!(outcome(0), Err(NoChoice::AllDown));
        }
    }
}
