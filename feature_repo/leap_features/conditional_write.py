"""The only ways in which a history row may change in Redis: Lua scripts that compare and write in one step.

The worker's claims and writes land if the store is still the one that the batch began from (generation and
checkpoints), a row's if it also is, byte for byte, the one that the fold began from. So a store that lost its last
second, a promoted replica that lagged and a zombie worker are all the same case: refused.

A generic Feast write (`materialize`, `push`) lands unless its version is behind the stored one in any partition; an
equal version lands, so that a new feature can be back-filled. Views without a version compare event timestamps.
"""

from __future__ import annotations

import hashlib
from typing import Final

WRITTEN: Final = 1
CONFLICT: Final = 0
"""Another writer changed the row: read it and fold again."""
REFUSED: Final = -1
"""The store is not the one that the batch began from: drop the batch and begin again at the checkpoint."""

_STILL_THE_SAME: Final = """
local function holds(key, at, count)
  for i = at, at + 2 * count - 2, 2 do
    if (redis.call('HGET', key, ARGV[i]) or '') ~= ARGV[i + 1] then return false end
  end
  return true
end
local function still_the_same(meta, generation, at, count)
  return redis.call('HGET', meta, 'generation') == generation and holds(meta, at, count)
end
"""

# KEYS: meta, attempt…. ARGV: generation, number of checkpoints, (checkpoint field, expected)…, how long to remember in
# milliseconds, claim of each attempt…. Replies with what each attempt was claimed by before, in their order.
CLAIM_ATTEMPTS: Final = (
    _STILL_THE_SAME
    + """
local count = tonumber(ARGV[2])
if not still_the_same(KEYS[1], ARGV[1], 3, count) then return -1 end
local at = 3 + 2 * count
local before = {}
for i = 2, #KEYS do
  before[i - 1] = redis.call('SET', KEYS[i], ARGV[at + i - 1], 'NX', 'GET', 'PX', ARGV[at])
end
return before
"""
)

# KEYS: meta, attempt. ARGV: generation, number of checkpoints, (checkpoint field, expected)…, how long to remember in
# milliseconds, expected claim, new claim. Replies with the claim that stands.
TAKE_CLAIM_OVER: Final = (
    _STILL_THE_SAME
    + """
local count = tonumber(ARGV[2])
if not still_the_same(KEYS[1], ARGV[1], 3, count) then return -1 end
local at = 3 + 2 * count
local stands = redis.call('GET', KEYS[2])
if stands and stands ~= ARGV[at + 1] then return stands end
redis.call('SET', KEYS[2], ARGV[at + 2], 'PX', ARGV[at])
return ARGV[at + 2]
"""
)

# KEYS: row, meta. ARGV: generation, number of checkpoints, (checkpoint field, expected)…, number of fields compared,
# (field, expected)…, (field, new value)… An absent checkpoint or field is expected as the empty string.
WRITE_ROW: Final = (
    _STILL_THE_SAME
    + """
local count = tonumber(ARGV[2])
if not still_the_same(KEYS[2], ARGV[1], 3, count) then return -1 end
local at = 3 + 2 * count
count = tonumber(ARGV[at])
if not holds(KEYS[1], at + 1, count) then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, at + 1 + 2 * count))
return 1
"""
)

# KEYS: meta. ARGV: generation, number of checkpoints, (checkpoint field, expected)…, (checkpoint field, new)…
# One by one: Lua unpacks no more than 8,000 arguments, and a topic may have 10,000 partitions.
MOVE_CHECKPOINTS: Final = (
    _STILL_THE_SAME
    + """
local count = tonumber(ARGV[2])
if not still_the_same(KEYS[1], ARGV[1], 3, count) then return -1 end
for i = 3 + 2 * count, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
return 1
"""
)

# A key goes with its last view, whatever older fields it still has.
_REMOVE_VIEW: Final = """
local function remove_view(key, first, last)
  redis.call('HDEL', key, unpack(ARGV, first, last))
  for _, name in ipairs(redis.call('HKEYS', key)) do
    if string.sub(name, 1, 4) == '_ts:' then return end
  end
  redis.call('UNLINK', key)
end
"""

# KEYS: row. ARGV: the view's fields.
DELETE_VIEW: Final = (
    _REMOVE_VIEW
    + """
remove_view(KEYS[1], 1, #ARGV)
return 1
"""
)

# KEYS: meta, key…. ARGV: generation, field…. Removes a view's fields from the rows; without fields, the keys.
REMOVE: Final = (
    _REMOVE_VIEW
    + """
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return -1 end
for i = 2, #KEYS do
  if #ARGV > 1 then remove_view(KEYS[i], 2, #ARGV) else redis.call('UNLINK', KEYS[i]) end
end
return 1
"""
)

# KEYS: meta, row. ARGV: generation, number of fields, field…, expected value of each…, new value of each… or nothing.
# An absent field is expected as the empty string. Without new values the view's fields are removed.
MEND_ROW: Final = (
    _REMOVE_VIEW
    + """
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return -1 end
local count = tonumber(ARGV[2])
local stored = redis.call('HMGET', KEYS[2], unpack(ARGV, 3, 2 + count))
for i = 1, count do
  if (stored[i] or '') ~= ARGV[2 + count + i] then return 0 end
end
if #ARGV == 2 + 2 * count then
  remove_view(KEYS[2], 3, 2 + count)
else
  for i = 1, count do redis.call('HSET', KEYS[2], ARGV[2 + i], ARGV[2 + 2 * count + i]) end
end
return 1
"""
)

# KEYS: meta, attempt. ARGV: generation, expected claim ('' where there is none), new claim ('' for none), how long to
# remember it in milliseconds.
MEND_ATTEMPT: Final = """
if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return -1 end
if (redis.call('GET', KEYS[2]) or '') ~= ARGV[2] then return 0 end
if ARGV[3] == '' then
  redis.call('UNLINK', KEYS[2])
else
  redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
end
return 1
"""

# KEYS: meta. ARGV: expected generation, or '' where anything may be replaced, (field, value)…. Replaces the whole hash.
REPLACE_META: Final = """
if ARGV[1] ~= '' and redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return -1 end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return 1
"""

# KEYS: row. ARGV: version field, version ('' if the row has none), timestamp field, timestamp, (field, value)…
# Versions are serialized Feast strings: `body` skips the tag and the length before the text. Timestamps are serialized
# protobuf Timestamps. Whoever passes no version writes a view that keeps none.
WRITE_IF_NOT_BEHIND: Final = """
local function positions(text)
  local found = {}
  for epoch, partition, offset in string.gmatch(text, '(%d+):(%d+):(%d+)') do
    found[epoch .. ':' .. partition] = tonumber(offset)
  end
  return found
end
local function body(value)
  local at = 2
  while string.byte(value, at) and string.byte(value, at) >= 128 do at = at + 1 end
  return string.sub(value, at + 1)
end
local function nanoseconds(value)
  local parts, at = {0, 0}, 1
  while at <= #value do
    local field = (string.byte(value, at) - string.byte(value, at) % 8) / 8
    local number, inverse, scale, length = 0, 0, 1, 0
    repeat
      at = at + 1
      length = length + 1
      local byte = string.byte(value, at)
      number = number + (byte % 128) * scale
      if length < 10 then inverse = inverse + (127 - byte % 128) * scale end
      scale = scale * 128
    until byte < 128
    -- Ten bytes hold a negative number, of which a double has room for the complement alone: a time before 1970.
    parts[field] = length < 10 and number or -1 - inverse
    at = at + 1
  end
  return parts[1], parts[2]
end
local stored = redis.call('HGET', KEYS[1], ARGV[1])
if stored and stored ~= '' then
  local new = positions(ARGV[2] ~= '' and body(ARGV[2]) or '')
  for key, offset in pairs(positions(body(stored))) do
    if not new[key] or new[key] < offset then return 0 end
  end
elseif ARGV[2] == '' then
  local before = redis.call('HGET', KEYS[1], ARGV[3])
  if before then
    local old_seconds, old_nanos = nanoseconds(before)
    local seconds, nanos = nanoseconds(ARGV[4])
    if seconds < old_seconds or (seconds == old_seconds and nanos < old_nanos) then return 0 end
  end
end
redis.call('HSET', KEYS[1], ARGV[3], ARGV[4], unpack(ARGV, 5))
return 1
"""


def sha1(script: str) -> bytes:
    """The name under which Redis caches `script`, for EVALSHA."""
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest().encode()
