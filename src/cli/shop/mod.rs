//! Commands on animals, orders and messages, and the files of animals.

pub(super) mod animal_file;
pub(super) mod first_animals;
pub(super) mod messages;
pub(super) mod orders;
pub(super) mod pets;
pub(super) mod reset;
