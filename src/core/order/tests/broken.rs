//! Each rule switched off is caught. The test prints which check catches it, and with which
//! program.

use super::deferral::{self, Before, Op};
use super::interleave::{self, Protocol};
use super::programs::{PROMISED, SETTINGS, THEMES, promised};
use super::threads::{self, Careful};
use super::{in_own_process, std, tier, with_broken};
use crate::rules::Rule;

/// The tests that must find the broken rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Finder {
    Interleave,
    Sole(&'static [Op]),
    Contexts(&'static [Op]),
    Threads,
    Programs(&'static str),
    Promised,
}

/// Both streams, and one kind of free.
const EACH: [Op; 3] = [Op::Submit(0), Op::Submit(1), Op::Free];
const OF_ALL: [Op; 3] = [Op::Submit(0), Op::Submit(1), Op::FreeOfAll];

/// A host function, and a free that defers its wait.
const REFUSED: [Op; 4] = [Op::Submit(0), Op::Submit(1), Op::Refused(1), Op::Free];

/// A context that works, and one that does not.
const BESIDE: [Op; 4] = [Op::FreeOfAllElsewhere, Op::Submit(0), Op::Submit(1), Op::FreeOfAll];

const RULES: [(Rule, Finder); 25] = [
    (Rule::BarrierOnFree, Finder::Programs("streams")),
    (Rule::OtherStreamFlushes, Finder::Programs("streams")),
    (Rule::OtherStreamFlushes, Finder::Sole(&OF_ALL)),
    (Rule::StreamsWaitForThemselves, Finder::Sole(&EACH)),
    (Rule::StreamsWaitForTheNewest, Finder::Sole(&EACH)),
    (Rule::RefusedWaitStaysDeferred, Finder::Sole(&REFUSED)),
    (Rule::OwnerForgetsStreams, Finder::Sole(&OF_ALL)),
    (Rule::NothingBegunForgetsStreams, Finder::Sole(&OF_ALL)),
    (Rule::OnlySubmitterForgets, Finder::Contexts(&BESIDE)),
    (Rule::DeferralIsPerContext, Finder::Contexts(&deferral::BESIDE)),
    (Rule::EndedStreamFlushes, Finder::Programs("streams")),
    (Rule::CaptureFlushesFirst, Finder::Programs("captures")),
    (Rule::ElisionNeedsEnded, Finder::Interleave),
    (Rule::CoverNeedsSeen, Finder::Interleave),
    (Rule::VisibleWorkWaits, Finder::Programs("visibility")),
    (Rule::VisibleWorkMarksBothSides, Finder::Threads),
    (Rule::ExclusiveContextOnly, Finder::Programs("second context")),
    (Rule::CaptureWaitsInDriver, Finder::Programs("captures")),
    (Rule::StrictWaits, Finder::Programs("streams")),
    (Rule::AsyncTagWaitsElsewhere, Finder::Programs("stream-ordered")),
    (Rule::StreamElsewhereTags, Finder::Promised),
    (Rule::FreeJoinsLegacy, Finder::Programs("legacy stream")),
    (Rule::FreeOfStreamBlockIsPending, Finder::Programs("stream-ordered")),
    (Rule::VisibleIsSticky, Finder::Programs("visibility")),
    (Rule::CommunicationIsVisible, Finder::Programs("visibility")),
];

#[test]
fn each_rule_is_needed() {
    in_own_process("order::tests::broken::each_rule_is_needed", || {
        // The fast tier checks a third of the rules.
        for (rule, finder) in RULES.into_iter().step_by(tier::count(3, 1)) {
            let found = with_broken(rule.name(), || find(finder));
            std::println!("{}: {found:?}", rule.name());
            assert!(found.is_some(), "{} is not caught by {finder:?}", rule.name());
        }
    });
}

/// What finds a broken rule finds nothing while all hold. Otherwise a mistake with the same effect
/// could go unnoticed, since `deferral` explores more operations, but shorter programs.
#[test]
#[ignore = "long tier"]
fn nothing_is_found_while_all_rules_hold() {
    for finder in [Finder::Sole(&OF_ALL), Finder::Sole(&EACH), Finder::Contexts(&BESIDE)] {
        assert_eq!(find(finder), None, "{finder:?}");
    }
}

fn find(finder: Finder) -> Option<alloc::string::String> {
    match finder {
        Finder::Interleave => {
            interleave::explore_all(Protocol::OURS, 4).violation.map(|what| what.into())
        }
        Finder::Sole(alphabet) => {
            deferral::explore_all(alphabet, Before::Several, deferral::Left::Nothing, 5)
                .violation
                .map(|what| what.into())
        }
        Finder::Contexts(alphabet) => {
            deferral::explore_all(alphabet, Before::Ended, deferral::Left::Nothing, 5)
                .violation
                .map(|what| what.into())
        }
        Finder::Threads => threads::explore_all(Careful::OURS, &threads::VISIBLE, 4)
            .violation
            .map(|what| what.into()),
        Finder::Programs(name) => {
            let theme = THEMES.iter().find(|theme| theme.name == name).expect("a theme");
            SETTINGS.into_iter().find_map(|setting| theme.run(setting, 0).violation)
        }
        Finder::Promised => {
            SETTINGS.into_iter().find_map(|setting| PROMISED.run(promised(setting), 0).violation)
        }
    }
}
