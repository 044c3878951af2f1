//! Distributes a request for memory over the peer processes.

use crate::page::Offer;

/// Returns the mebibytes that each process releases so that together they reach `wanted`: first
/// what they have not used for a while, the largest first, and only then what they may soon need
/// again. If `all` is set and all offers together are less, every share is 0.
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
