//! What the stories together must have shown: a story that meets no fault proves nothing.

macro_rules! seen {
    ($($(#[$doc:meta])* $what:ident,)*) => {
        /// How often each thing happened.
        #[derive(Debug, Default)]
        pub(crate) struct Seen { $($(#[$doc])* pub(crate) $what: usize,)* }

        impl Seen {
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$what += other.$what;)*
            }

            fn each(&self) -> impl Iterator<Item = (&'static str, usize)> {
                [$((stringify!($what), self.$what)),*].into_iter()
            }
        }
    };
}

seen! {
    answered,
    refused,
    pending,
    unknown,
    no_child,
    resends,
    given_up,
    diverged,
    reseeds,
    replays,
    reads,
    overruns,
    /// Live changes that all answered alike; that not all did; that were refused; rows of such as were not sent.
    together,
    partial,
    not_queueable,
    missed,
    /// Changes that were refused because their group takes them only when complete.
    incomplete,
    /// Doubts that the operator looked into.
    doubts,
    /// Times that the process was killed, or the power cut; starts that were ended by the next crash; children in doubt
    /// after that; batches read of the past; changes that could not be put on record, or for which there was no room.
    kills,
    cuts,
    starts_cut,
    in_doubt,
    past,
    unrecorded,
    full,
    /// Changes that were taken before anybody had them; of these, while no child was there; and such as too few carried
    /// out for their quorum.
    accepted,
    for_later,
    too_few,
    removed,
    /// Starts with the children in another order; children that came back under a name that is on record.
    reordered,
    came_back,
    /// Segments of the record that were let go; children that were given up for want of room.
    trimmed,
    dropped,
    /// Changes that were withdrawn because nobody had been sent them.
    withdrawn,
}

impl Seen {
    /// # Panics
    /// If something was never shown that is not `absent` from these stories.
    pub(crate) fn assert_all_but(&self, absent: &[&str]) {
        println!("{self:?}");
        for (what, count) in self.each().filter(|(what, _)| !absent.contains(what)) {
            assert!(count > 0, "the stories never showed: {what}");
        }
    }
}
