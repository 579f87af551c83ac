"""Google's common types (`google/type/*.proto`), which Confluent's registry knows without a reference.

Only what travels and what names need: fields, numbers, types. Options for generated code are left out.
"""

from __future__ import annotations

_DAYS = "MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY"
_MONTHS = "JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER NOVEMBER DECEMBER"
_TIME = "int32 hours, int32 minutes, int32 seconds, int32 nanos"


def _message(name: str, fields: str) -> str:
    """Fields in the order of their numbers, from 1."""
    numbered = (f"{field.strip()} = {number};" for number, field in enumerate(fields.split(","), 1))
    return f"message {name} {{ {' '.join(numbered)} }}"


def _enum(name: str, values: str) -> str:
    return f"enum {name} {{ {' '.join(f'{value} = {number};' for number, value in enumerate(values.split()))} }}"


_BODIES = {
    "calendar_period": _enum(
        "CalendarPeriod", "CALENDAR_PERIOD_UNSPECIFIED DAY WEEK FORTNIGHT MONTH QUARTER HALF YEAR"
    ),
    "color": 'import "google/protobuf/wrappers.proto";'
    + _message("Color", "float red, float green, float blue, google.protobuf.FloatValue alpha"),
    "date": _message("Date", "int32 year, int32 month, int32 day"),
    "datetime": (
        'import "google/protobuf/duration.proto"; message DateTime { int32 year = 1; int32 month = 2; int32 day = 3;'
        "int32 hours = 4; int32 minutes = 5; int32 seconds = 6; int32 nanos = 7;"
        "oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; } }"
    )
    + _message("TimeZone", "string id, string version"),
    "dayofweek": _enum("DayOfWeek", f"DAY_OF_WEEK_UNSPECIFIED {_DAYS}"),
    "decimal": _message("Decimal", "string value"),
    "expr": _message("Expr", "string expression, string title, string description, string location"),
    "fraction": _message("Fraction", "int64 numerator, int64 denominator"),
    "interval": 'import "google/protobuf/timestamp.proto";'
    + _message("Interval", "google.protobuf.Timestamp start_time, google.protobuf.Timestamp end_time"),
    "latlng": _message("LatLng", "double latitude, double longitude"),
    "localized_text": _message("LocalizedText", "string text, string language_code"),
    "money": _message("Money", "string currency_code, int64 units, int32 nanos"),
    "month": _enum("Month", f"MONTH_UNSPECIFIED {_MONTHS}"),
    "phone_number": (
        "message PhoneNumber { oneof kind { string e164_number = 1; ShortCode short_code = 2; } string extension = 3;"
        f"{_message('ShortCode', 'string region_code, string number')} }}"
    ),
    "postal_address": _message(
        "PostalAddress",
        "int32 revision, string region_code, string language_code, string postal_code, string sorting_code,"
        "string administrative_area, string locality, string sublocality, repeated string address_lines,"
        "repeated string recipients, string organization",
    ),
    "quaternion": _message("Quaternion", "double x, double y, double z, double w"),
    "timeofday": _message("TimeOfDay", _TIME),
}
GOOGLE_TYPES = {
    f"google/type/{name}.proto": f'syntax = "proto3"; package google.type; {body}' for name, body in _BODIES.items()
}
"""The text of each file, by the path that an import names."""
