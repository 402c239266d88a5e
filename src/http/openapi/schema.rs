//! The interface's shapes, as far as no type of the code has them already.

use crate::domain::{OrderStatus, PetStatus};

/// What is needed to add an animal.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct NewPet {
    /// The animal's name: not only white space, no control characters; kept as sent.
    // White space is written out, since engines differ in what `\s` is.
    #[schema(
        min_length = 1,
        max_length = 255,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]*[^\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000][^\u0000-\u001f\u007f-\u009f]*$"
    )]
    pub name: String,
    /// Identifier of the category the animal belongs to.
    pub category_id: i64,
    /// Availability of the animal; `available` when omitted.
    #[schema(required = false, default = "available")]
    pub status: PetStatus,
}

/// An animal.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Pet {
    /// Unique identifier assigned by the service on creation. Ids grow and are never reused.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub id: i64,
    /// The animal's name.
    #[schema(min_length = 1, max_length = 255)]
    pub name: String,
    /// Identifier of the category the animal belongs to.
    pub category_id: i64,
    /// Availability of the animal.
    pub status: PetStatus,
}

/// A page of animals, in order of their ids.
#[derive(utoipa::ToSchema)]
#[schema(max_items = 100)]
pub struct Pets(pub Vec<Pet>);

/// What is needed to place an order.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct NewOrder {
    /// Identifier of the animal that is ordered.
    pub pet_id: i64,
}

/// An order of an animal.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Order {
    /// Unique identifier assigned by the service when the order is placed. Ids grow and are never reused.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub id: i64,
    /// Identifier of the animal that is ordered.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_i64)]
    pub pet_id: i64,
    /// How far the order is.
    pub status: OrderStatus,
    /// When it was placed, in UTC with milliseconds (ISO 8601).
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When its status last changed, in UTC with milliseconds (ISO 8601).
    #[schema(format = DateTime)]
    pub updated_at: String,
}

/// A page of orders, in order of their ids.
#[derive(utoipa::ToSchema)]
#[schema(max_items = 100)]
pub struct Orders(pub Vec<Order>);

/// What is needed to send a message.
#[derive(utoipa::ToSchema)]
pub struct NewMessage {
    /// The message text: not only white space, no control characters but tab, line feed and carriage return.
    #[schema(
        min_length = 1,
        max_length = 10_000,
        pattern = r"^[^\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]*[^\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000][^\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]*$"
    )]
    pub message: String,
}

/// A message, as it was taken on.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Message {
    /// Identifier of the message: `msg_` and a UUIDv7 without hyphens.
    #[schema(pattern = "^msg_[0-9a-f]{32}$")]
    pub id: String,
    /// The message text that was sent.
    #[schema(min_length = 1, max_length = 10_000)]
    pub message: String,
    /// Processing status; `queued` is the one there is now.
    pub status: String,
    /// Creation time, in UTC with milliseconds (ISO 8601).
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// Every error of the API.
#[derive(utoipa::ToSchema)]
pub struct Error {
    /// Machine-readable error code. The examples of an answer are named after the codes it can have; codes may be added.
    #[schema(example = "invalid_value")]
    pub code: String,
    /// Human-readable description: what was wrong, and what is allowed.
    #[schema(example = "`limit` is 0; 1 to 100 are allowed.")]
    pub message: String,
    /// The HTTP status code.
    #[schema(minimum = 400, maximum = 599, example = 400)]
    pub status: i32,
}
