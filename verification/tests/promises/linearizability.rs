//! Checks whether a history of concurrent operations on one object is linearizable: each operation must seem to take effect
//! at one moment between its request and its response.
//!
//! The algorithm is that of Wing and Gong (1993) with Lowe's memory of visited states (2017), which Porcupine and Knossos
//! use too. Linearizability is local: a history of many objects is linearizable if that of each object is. Histories of one
//! object are short, so the search is fast. The checker of the crate `stateright` (0.31) has no memory of visited
//! states, and the crate brings an HTTP server.

use std::collections::HashSet;
use std::hash::Hash;

/// An operation as its client observed it.
#[derive(Clone, Debug)]
pub struct Event<O> {
    /// Times in nanoseconds since the start of the run.
    pub sent: u64,
    /// [`UNKNOWN`] if the client does not know the outcome: the operation may take effect at any later time, or never.
    pub answered: u64,
    pub operation: O,
}

pub const UNKNOWN: u64 = u64::MAX;

/// The state of an object, as its specification describes it.
pub trait Model: Clone + Eq + Hash + Default {
    type Operation;

    /// Returns the state after the operation. `None` if the operation cannot have the observed outcome in this state.
    fn after(&self, operation: &Self::Operation) -> Option<Self>;
}

/// Searches for an order of the operations that explains all outcomes.
pub fn is_linearizable<M: Model>(history: &[Event<M::Operation>]) -> bool {
    assert!(history.len() <= 128, "{} operations on one object", history.len());
    let is_done = |done: u128, number: usize| done >> number & 1 == 1;
    let mut seen = HashSet::new();
    // Operations that took effect, and the state after them.
    let mut open = vec![(0_u128, M::default())];
    while let Some((done, state)) = open.pop() {
        let waiting = || history.iter().enumerate().filter(|(number, _)| !is_done(done, *number));
        // No operation can take effect after another one that has been answered before it was sent.
        let first_answer = waiting().map(|(_, event)| event.answered).min().unwrap_or(UNKNOWN);
        if first_answer == UNKNOWN {
            return true;
        }
        for (number, event) in waiting().filter(|(_, event)| event.sent <= first_answer) {
            // An operation of unknown outcome that changes nothing may as well take effect later, or never.
            let is_idle = |next: &M| event.answered == UNKNOWN && *next == state;
            if let Some(next) = state.after(&event.operation).filter(|next| !is_idle(next)) {
                let next = (done | 1 << number, next);
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
    false
}
