//! The animals of a store for a first look.

use super::{NewPet, PetName, PetStatus};

/// Returns the 30 animals of `quickstart`.
pub fn sample_animals() -> impl Iterator<Item = Result<NewPet, String>> + Send {
    const NAMES: [&str; 30] = [
        "Rex", "Mimi", "Bubbles", "Coco", "Luna", "Nemo", "Polly", "Rocky", "Shelly", "Tango", "Ziggy", "Hazel",
        "Biscuit", "Clover", "Domino", "Ember", "Freckles", "Ginger", "Hugo", "Iris", "Juniper", "Kiwi", "Lotte",
        "Maple", "Noodle", "Olive", "Pepper", "Quill", "Rusty", "Saffron",
    ];
    NAMES.iter().enumerate().map(|(position, name)| {
        let name = PetName::parse((*name).to_owned()).map_err(|error| error.to_string())?;
        Ok(NewPet { status: PetStatus::ALL[position % 3], ..NewPet::new(name, position as i64 % 4 + 1) })
    })
}
