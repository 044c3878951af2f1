//! The list of contexts, which is read while others change it.

use crate::ROUNDS;
use crate::stand_ins::contexts::Context;
use crate::state::registry;

/// A traversal finds all contexts that existed before and remain, each complete, the newest first.
#[test]
fn a_walk_misses_none() {
    (0..ROUNDS).for_each(|round| walk(3 * round));
}

fn walk(last_id: u64) {
    let [first, goes] = [last_id + 1, last_id + 2].map(Context::leaked);
    registry::push(first);
    registry::push(goes);
    let alive = || registry::alive().map(|context| context.id).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        scope.spawn(|| registry::push(Context::leaked(last_id + 3)));
        scope.spawn(|| registry::remove_from_alive(goes));
        for _ in 0..2 {
            scope.spawn(|| {
                let alive = alive();
                assert!(alive.is_sorted_by(|one, next| one > next), "{alive:?}");
                assert!(alive.contains(&first.id), "{alive:?}");
                let ever = registry::ever().map(|context| context.id);
                let old: Vec<u64> = ever.skip_while(|id| *id > goes.id).collect();
                assert!(old.into_iter().eq((1..=goes.id).rev()));
            });
        }
    });
    assert_eq!(alive()[..2], [last_id + 3, last_id + 1]);
    assert_eq!(registry::count() as u64, last_id + 3);
}
