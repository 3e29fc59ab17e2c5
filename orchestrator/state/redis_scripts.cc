#include "orchestrator/state/redis_scripts.h"

namespace moestro::orchestrator::redis {

// A script that fails midway keeps what it has changed: so each looks at everything first, and only then writes.
// When memory is full, Redis refuses what needs more unless the script has deleted something before, there or not. So
// what ends a batch, and what says who lives and leads, deletes first.

constexpr std::string_view kFiles = R"lua(
local function fields_at(at)
  local n, fields = tonumber(ARGV[at]), {}
  for i = 1, n do fields[i] = ARGV[at + i] end
  return fields, at + n + 1
end
local function part_of(id, host) return 'moestro:part:' .. id .. ':' .. host end
local function is_missing(id, bytes, host)
  return tonumber(bytes) > 0 and redis.call('EXISTS', 'moestro:file:' .. id) == 0 and redis.call('EXISTS', part_of(id, host)) == 0
end
local function put_file(id, purpose, bytes, expires, host, fields)
  local key = 'moestro:file:' .. id
  if redis.call('EXISTS', key) == 1 then return end
  if tonumber(bytes) > 0 then
    redis.call('RENAME', part_of(id, host), 'moestro:blob:' .. id)
    redis.call('PERSIST', 'moestro:blob:' .. id)
  end
  local n = redis.call('INCR', 'moestro:next')
  redis.call('HSET', key, unpack(fields))
  redis.call('ZADD', 'moestro:files', n, id)
  redis.call('ZADD', 'moestro:files:' .. purpose, n, id)
  local of_owner = ':of:' .. (redis.call('HGET', key, 'owner') or '')
  redis.call('ZADD', 'moestro:files' .. of_owner, n, id)
  redis.call('ZADD', 'moestro:files:' .. purpose .. of_owner, n, id)
  if tonumber(expires) > 0 then redis.call('ZADD', 'moestro:expiring', expires, id) end
end
)lua";

const Script kPutFile{kFiles, "", R"lua(
local id, purpose, bytes, expires, host = unpack(ARGV, 1, 5)
if is_missing(id, bytes, host) then return redis.error_reply('ABSENT the bytes of the file are gone; upload it again') end
put_file(id, purpose, bytes, expires, host, (fields_at(6)))
return 1
)lua"};

const Script kExpiredFiles{"", "", R"lua(
local now, most, used, expired, from = ARGV[1], tonumber(ARGV[2]), {}, {}, 0
for _, batch in ipairs(redis.call('ZRANGE', 'moestro:open', 0, -1)) do
  used[redis.call('HGET', 'moestro:batch:' .. batch, 'input_file') or ''] = true
end
while true do
  local ids = redis.call('ZRANGEBYSCORE', 'moestro:expiring', '-inf', now, 'LIMIT', from, most)
  for _, id in ipairs(ids) do
    if not used[id] then expired[#expired + 1] = id end
    if #expired == most then return expired end
  end
  if #ids < most then return expired end
  from = from + most
end
)lua"};

const Script kRemoveFile{"", "", R"lua(
local id, removed_max = ARGV[1], tonumber(ARGV[2])
for _, batch in ipairs(redis.call('ZRANGE', 'moestro:open', 0, -1)) do
  if redis.call('HGET', 'moestro:batch:' .. batch, 'input_file') == id then
    return redis.error_reply('CONFLICT the file is the input of ' .. batch .. ', which is not over; cancel that first')
  end
end
local purpose, owner = unpack(redis.call('HMGET', 'moestro:file:' .. id, 'purpose', 'owner'))
local of_owner = ':of:' .. (owner or '')
local number = redis.call('ZSCORE', 'moestro:files', id)
redis.call('DEL', 'moestro:file:' .. id)
redis.call('UNLINK', 'moestro:blob:' .. id)
redis.call('ZREM', 'moestro:files', id)
redis.call('ZREM', 'moestro:expiring', id)
redis.call('ZREM', 'moestro:files' .. of_owner, id)
if purpose then
  redis.call('ZREM', 'moestro:files:' .. purpose, id)
  redis.call('ZREM', 'moestro:files:' .. purpose .. of_owner, id)
end
if not number then return 0 end
redis.call('HSET', 'moestro:removed', id, number)
if redis.call('RPUSH', 'moestro:removed:order', id) > removed_max then
  redis.call('HDEL', 'moestro:removed', redis.call('LPOP', 'moestro:removed:order'))
end
return 1
)lua"};

const Script kAddBatch{kFiles, "", R"lua(
local id = ARGV[1]
local key = 'moestro:batch:' .. id
if redis.call('EXISTS', key) == 1 then return 0 end
redis.call('HSET', key, unpack((fields_at(2))))
local n = redis.call('INCR', 'moestro:next')
redis.call('ZADD', 'moestro:batches', n, id)
redis.call('ZADD', 'moestro:batches:of:' .. (redis.call('HGET', key, 'owner') or ''), n, id)
redis.call('ZADD', 'moestro:open', n, id)
redis.call('HINCRBY', 'moestro:counts', redis.call('HGET', key, 'status'), 1)
return 1
)lua"};

// Status 2 is in_progress; 3 is finalizing and 6 cancelling, where no line is taken any more. Whoever writes files, or
// ends the checking, must lead the batch; anybody may cancel it.
constexpr std::string_view kChange = R"lua(
local id, from, to, host = unpack(ARGV, 1, 4)
local key = 'moestro:batch:' .. id
local status, lead = unpack(redis.call('HMGET', key, 'status', 'lead'))
if not status then return redis.error_reply('ABSENT there is no batch ' .. id) end
local led_by_another = lead and lead ~= '' and lead ~= host
)lua";

// The checking ends when each line was offered or has a result. An offer that was sent long ago, over a connection that
// was given up, may come amid a later check, whose own offers before it are then ignored.
const Script kChangeBatch{kFiles, kChange, R"lua(
local fields, total = fields_at(5), 0
for i = 1, #fields, 2 do
  if fields[i] == 'total' then total = tonumber(fields[i + 1]) end
end
if status ~= from then return redis.error_reply('CONFLICT batch ' .. id .. ' is in another state already') end
if to == '2' and led_by_another then return redis.error_reply('CONFLICT batch ' .. id .. ' is led by another orchestrator') end
if from == '0' and to == '2' and redis.call('XLEN', 'moestro:queue:' .. id) + redis.call('BITCOUNT', 'moestro:done:' .. id) < total then
  return redis.error_reply('CONFLICT not every line of batch ' .. id .. ' was offered')
end
if to == '3' or to == '6' then redis.call('UNLINK', 'moestro:queue:' .. id) end
redis.call('HSET', key, unpack(fields))
redis.call('HINCRBY', 'moestro:counts', from, -1)
redis.call('HINCRBY', 'moestro:counts', to, 1)
return 1
)lua"};

const Script kFinish{kFiles, kChange, R"lua(
if status == to then return 0 end
if status ~= from or led_by_another then return redis.error_reply('CONFLICT batch ' .. id .. ' is in other hands already') end
local state, at = fields_at(5)
local files = {}
while at <= #ARGV do
  local file = {unpack(ARGV, at, at + 3)}
  file[5], at = fields_at(at + 4)
  if is_missing(file[1], file[3], host) then return redis.error_reply('ABSENT the bytes of the file are gone') end
  files[#files + 1] = file
end
redis.call('UNLINK', 'moestro:queue:' .. id, 'moestro:done:' .. id, 'moestro:results:' .. id)
redis.call('HSET', key, unpack(state))
for _, file in ipairs(files) do put_file(file[1], file[2], file[3], file[4], host, file[5]) end
redis.call('HDEL', key, 'lead')
redis.call('ZREM', 'moestro:open', id)
redis.call('HINCRBY', 'moestro:counts', from, -1)
redis.call('HINCRBY', 'moestro:counts', to, 1)
return 1
)lua"};

// What is written until memory is full, and then removed, would be written again and again, and leave others no room.
const Script kRoomForFiles{"", "", R"lua(
local id = ARGV[1]
local info = redis.call('INFO', 'memory')
local used, most = tonumber(string.match(info, 'used_memory:(%d+)')), tonumber(string.match(info, 'maxmemory:(%d+)'))
if most == 0 then return 1 end
local total, good, bad = unpack(redis.call('HMGET', 'moestro:batch:' .. id, 'total', 'completed', 'failed'))
local lines_not_run = math.max(0, (tonumber(total) or 0) - (tonumber(good) or 0) - (tonumber(bad) or 0))
local results = redis.pcall('MEMORY', 'USAGE', 'moestro:results:' .. id, 'SAMPLES', 100)
if type(results) ~= 'number' then results = 0 end  -- none are there, or this user may not ask
if used + results + 256 * lines_not_run > most then return redis.error_reply('OOM its files have no room') end
return 1
)lua"};

// Result, count and acknowledgement in one step: a line is counted once, however many orchestrators have run it. One
// that did not get the answer asks again, and is told of its own results that are there: two runs give other answers.
// While a batch is checked (status 0), results say what is wrong with lines, and are of no version.
const Script kPutResults{"", "", R"lua(
local id, version = ARGV[1], ARGV[2]
local key, queue = 'moestro:batch:' .. id, 'moestro:queue:' .. id
local status, output, model = unpack(redis.call('HMGET', key, 'status', 'output_file', 'model'))
if not status then return redis.error_reply('ABSENT there is no batch ' .. id) end
if status ~= '0' and redis.call('HGET', 'moestro:holds', model) ~= version then
  return redis.error_reply('CONFLICT the model name of batch ' .. id .. ' belongs to another version')
end
local is_open = status == '0' or status == '2' or status == '3' or status == '6'
local takes = is_open and output == ''
local good, bad, prompt, cached, completion, own = 0, 0, 0, 0, 0, {0, 0}
for at = 3, #ARGV, 6 do
  local line, is_good = ARGV[at], ARGV[at + 1] == '1'
  local figures = table.concat({ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]}, ' ')
  local result = figures .. '\n' .. ARGV[at + 5]
  if takes and redis.call('SETBIT', 'moestro:done:' .. id, line, 1) == 0 then
    redis.call('HSET', 'moestro:results:' .. id, line, result)
    if is_good then good = good + 1 else bad = bad + 1 end
    prompt, cached, completion = prompt + ARGV[at + 2], cached + ARGV[at + 3], completion + ARGV[at + 4]
  elseif redis.call('HGET', 'moestro:results:' .. id, line) == result then
    local which = is_good and 1 or 2
    own[which] = own[which] + 1
  end
  if takes then
    redis.call('XACK', queue, 'runners', line .. '-1')
    redis.call('XDEL', queue, line .. '-1')
  end
end
if not takes then return own end
redis.call('HINCRBY', key, 'completed', good)
redis.call('HINCRBY', key, 'failed', bad)
redis.call('HINCRBY', key, 'prompt_tokens', prompt)
redis.call('HINCRBY', key, 'cached_tokens', cached)
redis.call('HINCRBY', key, 'completion_tokens', completion)
return {own[1] + good, own[2] + bad}
)lua"};

// A silent orchestrator may live: it could not speak while Redis was away. So whoever may not claim yet does not know
// of a name whether it is free, unless all are heard.
constexpr std::string_view kNames = R"lua(
local host, may_claim, version = ARGV[1], ARGV[2] == '1', ARGV[3]
local key = 'moestro:host:' .. host
local function hosts_of(name, its_version)
  local hosts, is_known = {}, true
  for _, one in ipairs(redis.call('SMEMBERS', 'moestro:hosts')) do
    local said = redis.call('GET', 'moestro:host:' .. one)
    if not said and may_claim then redis.call('SREM', 'moestro:hosts', one) end
    is_known = is_known and (said or may_claim)
    local words = {}
    for word in string.gmatch(said or '', '[^\n]+') do words[#words + 1] = word end
    for i = 2, #words do
      if words[1] == its_version and words[i] == name then hosts[#hosts + 1] = one end
    end
  end
  return hosts, is_known
end
)lua";

const Script kBeat{kNames, "", R"lua(
local lease, answer = ARGV[#ARGV], {}
local says = version ~= '' and table.concat(ARGV, '\n', 3, #ARGV - 1) or ''
redis.call('DEL', key)
redis.call('SET', key, says, 'PX', lease)
redis.call('SADD', 'moestro:hosts', host)
if version == '' then return answer end
for i = 4, #ARGV - 1 do
  local name = ARGV[i]
  local holds = redis.call('HGET', 'moestro:holds', name)
  if holds ~= version then
    local hosts, is_known = {}, true
    if holds then hosts, is_known = hosts_of(name, holds) end
    if #hosts == 0 and is_known then
      redis.call('HSET', 'moestro:holds', name, version)
    else
      for _, word in ipairs({name, holds, #hosts, unpack(hosts)}) do answer[#answer + 1] = word end
    end
  end
end
return answer
)lua"};

const Script kLeave{kNames, "", R"lua(
redis.call('DEL', key)
redis.call('SREM', 'moestro:hosts', host)
for i = 4, #ARGV do
  local hosts, is_known = hosts_of(ARGV[i], version)
  if #hosts == 0 and is_known and redis.call('HGET', 'moestro:holds', ARGV[i]) == version then
    redis.call('HDEL', 'moestro:holds', ARGV[i])
  end
end
return 1
)lua"};

const Script kLead{"", "", R"lua(
local id, host = ARGV[1], ARGV[2]
local key = 'moestro:batch:' .. id
local lead = redis.call('HGET', key, 'lead')
if lead == host then return 1 end
if redis.call('EXISTS', key) == 0 then return 0 end
if lead and redis.call('EXISTS', 'moestro:host:' .. lead) == 1 then return 0 end
redis.call('HDEL', key, 'lead')
redis.call('HSET', key, 'lead', host)
return 1
)lua"};

const Script kOffer{"", "", R"lua(
local id, host, anew = ARGV[1], ARGV[2], ARGV[3] == '1'
local status, lead = unpack(redis.call('HMGET', 'moestro:batch:' .. id, 'status', 'lead'))
if status ~= '0' or lead ~= host then return redis.error_reply('CONFLICT batch ' .. id .. ' is in other hands already') end
local queue, last = 'moestro:queue:' .. id, 0
if anew then
  redis.call('DEL', queue)
  redis.call('XGROUP', 'CREATE', queue, 'runners', '0', 'MKSTREAM')
else
  local newest = redis.call('XREVRANGE', queue, '+', '-', 'COUNT', 1)
  if newest[1] then last = tonumber(string.match(newest[1][1], '^%d+')) end
end
for at = 4, #ARGV, 2 do
  if tonumber(ARGV[at]) > last then redis.call('XADD', queue, ARGV[at] .. '-1', 'o', ARGV[at + 1]) end
end
return 1
)lua"};

// `returned` is a consumer that never lives: what is its is anybody's.
const Script kTake{"", "", R"lua(
local id, host, most, may_claim, version = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1', ARGV[5]
local queue, taken = 'moestro:queue:' .. id, {}
local status, model = unpack(redis.call('HMGET', 'moestro:batch:' .. id, 'status', 'model'))
if status ~= '2' or redis.call('EXISTS', queue) == 0 then return taken end
if redis.call('HGET', 'moestro:holds', model) ~= version then return taken end
local function add(entries)
  for _, entry in ipairs(entries) do
    if entry and entry[2] then
      taken[#taken + 1] = entry[1]
      taken[#taken + 1] = entry[2][2]
      most = most - 1
    end
  end
end
local holders = redis.call('XPENDING', queue, 'runners')[4]
for _, holder in ipairs(holders or {}) do
  local name = holder[1]
  local is_free = name == 'returned' or (may_claim and redis.call('EXISTS', 'moestro:host:' .. name) == 0)
  if most > 0 and name ~= host and is_free then
    local ids = {}
    for _, one in ipairs(redis.call('XPENDING', queue, 'runners', '-', '+', most, name)) do ids[#ids + 1] = one[1] end
    if #ids > 0 then add(redis.call('XCLAIM', queue, 'runners', host, 0, unpack(ids))) end
  end
end
if most > 0 then
  local fresh = redis.call('XREADGROUP', 'GROUP', 'runners', host, 'COUNT', most, 'STREAMS', queue, '>')
  if fresh then add(fresh[1][2]) end
end
return taken
)lua"};

const Script kGiveBack{"", "", R"lua(
local id, host = ARGV[1], ARGV[2]
local queue = 'moestro:queue:' .. id
if redis.call('EXISTS', queue) == 0 then return 0 end
for at = 3, #ARGV do
  local line = ARGV[at] .. '-1'
  if redis.call('XPENDING', queue, 'runners', line, line, 1, host)[1] then redis.call('XCLAIM', queue, 'runners', 'returned', 0, line, 'JUSTID') end
end
return 1
)lua"};

const Script kHoldOnly{"", "", R"lua(
local id, host, held = ARGV[1], ARGV[2], {}
local queue, from, back = 'moestro:queue:' .. id, '-', 0
if redis.call('EXISTS', queue) == 0 then return 0 end
for at = 3, #ARGV do held[ARGV[at] .. '-1'] = true end
while true do
  local mine = redis.call('XPENDING', queue, 'runners', from, '+', 500, host)
  for _, one in ipairs(mine) do
    if not held[one[1]] then
      redis.call('XCLAIM', queue, 'runners', 'returned', 0, one[1], 'JUSTID')
      back = back + 1
    end
    from = '(' .. one[1]
  end
  if #mine < 500 then return back end
end
)lua"};

const Script kPutResponse{"", "", R"lua(
local id, owner, created_at, text, created_after, bytes_max = unpack(ARGV, 1, 6)
local key = 'moestro:response:' .. id
if redis.call('EXISTS', key) == 1 then return 0 end
redis.call('HSET', key, 'owner', owner, 'created_at', created_at, 'text', text)
redis.call('ZADD', 'moestro:responses', redis.call('INCR', 'moestro:next'), id)
local bytes = redis.call('INCRBY', 'moestro:responses:bytes', #text)
while true do
  local oldest = redis.call('ZRANGE', 'moestro:responses', 0, 0)[1]
  local of_oldest = 'moestro:response:' .. oldest
  local made = tonumber(redis.call('HGET', of_oldest, 'created_at') or '0')
  if oldest == id or (made > tonumber(created_after) and bytes <= tonumber(bytes_max)) then return 1 end
  bytes = redis.call('DECRBY', 'moestro:responses:bytes', redis.call('HSTRLEN', of_oldest, 'text'))
  redis.call('UNLINK', of_oldest)
  redis.call('ZREM', 'moestro:responses', oldest)
end
)lua"};

const Script kRemoveResponse{"", "", R"lua(
local id = ARGV[1]
local key = 'moestro:response:' .. id
if redis.call('ZREM', 'moestro:responses', id) == 0 then return 0 end
redis.call('DECRBY', 'moestro:responses:bytes', redis.call('HSTRLEN', key, 'text'))
redis.call('UNLINK', key)
return 1
)lua"};

}  // namespace moestro::orchestrator::redis
