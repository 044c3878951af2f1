//! Which processes give how much to one that lacks memory.

use crate::page::Offer;

/// What each gives so that together it is so many mebibytes: first what they have not used for a while, of the
/// largest first; only then what they may want again soon. `all`: nothing where all offers together are less.
pub fn shares(offers: &[Offer], wanted: u64, all: bool) -> Vec<u32> {
    let mut shares = vec![0; offers.len()];
    let free: u64 = offers.iter().map(|offer| u64::from(offer.free_mebibytes)).sum();
    if all && free < wanted {
        return shares;
    }
    let mut left = wanted;
    let kinds: [fn(&Offer) -> u32; 2] =
        [|offer| offer.idle_mebibytes.min(offer.free_mebibytes), |offer| offer.free_mebibytes];
    for kind in kinds {
        let mut most: Vec<(u32, usize)> =
            offers.iter().zip(0..).map(|(offer, at)| (kind(offer) - shares[at], at)).collect();
        most.sort_unstable_by(|one, other| other.cmp(one));
        for (mebibytes, at) in most {
            let share = u64::from(mebibytes).min(left) as u32;
            shares[at] += share;
            left -= u64::from(share);
        }
    }
    shares
}
