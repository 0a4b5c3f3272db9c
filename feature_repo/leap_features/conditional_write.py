"""The only ways in which a history row may change in Redis: Lua scripts that compare and write in one step.

The worker's write lands if the store is still the one that the batch began from (generation and checkpoints) and the
row still is, byte for byte, the one that the fold began from. So a store that lost its last second, a promoted replica
that lagged and a zombie worker are all the same case: refused.

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
local function still_the_same(meta, generation, at, count)
  if redis.call('HGET', meta, 'generation') ~= generation then return false end
  for i = at, at + 2 * count - 2, 2 do
    if (redis.call('HGET', meta, ARGV[i]) or '') ~= ARGV[i + 1] then return false end
  end
  return true
end
"""

# KEYS: row, meta. ARGV: generation, number of checkpoints, (checkpoint field, expected)…, version field,
# expected version, (field, value)… An absent checkpoint or version is expected as the empty string.
WRITE_ROW: Final = (
    _STILL_THE_SAME
    + """
local count = tonumber(ARGV[2])
if not still_the_same(KEYS[2], ARGV[1], 3, count) then return -1 end
local at = 3 + 2 * count
if (redis.call('HGET', KEYS[1], ARGV[at]) or '') ~= ARGV[at + 1] then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV, at + 2))
return 1
"""
)

# KEYS: meta. ARGV: generation, number of checkpoints, (checkpoint field, expected)…, (checkpoint field, new)…
MOVE_CHECKPOINTS: Final = (
    _STILL_THE_SAME
    + """
local count = tonumber(ARGV[2])
if not still_the_same(KEYS[1], ARGV[1], 3, count) then return -1 end
redis.call('HSET', KEYS[1], unpack(ARGV, 3 + 2 * count))
return 1
"""
)

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
