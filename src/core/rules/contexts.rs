//! Contexts: their ends, references to them, pinned memory that is cached for them, green contexts,
//! and several of them at once.

macro_rules! contexts {
    ($join:ident $($others:tt)*) => {
        $join! { $($others)*
            /// Access that the pool needs stays when the program disables its own.
            OpenedStaysOpen = "opened_stays_open",
            /// Cached pinned memory is no longer used by any work.
            PinnedFreeWaits = "pinned_free_waits",
            /// Cached pinned memory is zeroed before it is reused.
            PinnedIsZeroed = "pinned_is_zeroed",
            /// No pinned memory is cached for a context that has ended meanwhile: its addresses may
            /// belong to others by then.
            KeptWhileOpen = "kept_while_open",
            /// Pinned memory freed while a mere reference to its context is released is cached as
            /// usual.
            KeptBesideReferences = "kept_beside_references",
            /// Cached pinned memory that the program has freed does not exist for the program.
            KeptIsUnknown = "kept_is_unknown",
            /// Releasing a reference to a context waits for no work, although pinned memory is
            /// cached.
            ReferenceWaitsForNone = "reference_waits_for_none",
            /// Memory served by the driver lies in no segment of an ended context, even before that
            /// end is noted.
            ServedIsInNoSegment = "served_is_in_no_segment",
            /// The count of opened memory of other processes continues while a reference to their
            /// context is released.
            OpensOutliveReference = "opens_outlive_reference",
            /// Memory is found even while a reference to its context is being released.
            ReferenceHidesNothing = "reference_hides_nothing",
            /// Memory that leaves a context is ordered after its last barrier, even while a
            /// reference to the context is being released.
            BarrierOutlastsReference = "barrier_outlasts_reference",
            /// References are counted: releasing one that is not the last changes nothing, however
            /// long the driver takes.
            ReferencesAreCounted = "references_are_counted",
            /// If two threads drop the last two references, only one of them drops the last.
            ReferencesAreJudgedInTurn = "references_are_judged_in_turn",
            /// A call that ends a context waits for all its work while the context is still open to
            /// other threads.
            EndWaitsWhileOpen = "end_waits_while_open",
            /// The call that destroys other contexts does not destroy a primary one: the driver
            /// refuses that at once.
            PrimaryIsNotDestroyed = "primary_is_not_destroyed",
            /// No thread of the library is in a context that ends.
            ContextEndStopsScavenger = "context_end_stops_scavenger",
            /// What a pass of the scavenger has left unreleased ends with its context.
            LeftEndsWithContext = "left_ends_with_context",
            /// The end of a context takes its segments and blocks with it.
            ContextEndForgets = "context_end_forgets",
            /// Initializing the driver again forgets nothing about the process.
            SecondInitForgetsNothing = "second_init_forgets_nothing",
            /// The end of a context ends, by id, only what existed before it.
            EndsOnlyWhatExisted = "ends_only_what_existed",
            /// The end of a context takes its kernels with it.
            KernelsEndWithContext = "kernels_end_with_context",
            /// When a green context ends, its memory stays and is accessed through the primary
            /// context.
            GreenIsEnteredByPrimary = "green_is_entered_by_primary",
            /// The memory does not stay if the primary context ends with it.
            GreenHoldsPrimary = "green_holds_primary",
            /// A wait with a green context current proves nothing about other work.
            GreenWaitIsPartial = "green_wait_is_partial",
            /// If the program orders its contexts itself, a call does not wait for another thread's
            /// free in another context.
            PromisedContextsApart = "promised_contexts_apart",
            /// In that case, a free in stream order checks which context the stream belongs to.
            PromisedStreamsAreAsked = "promised_streams_are_asked",
            /// A thread's last free in each context is remembered.
            FreesInEachContext = "frees_in_each_context",
        }
    };
}
