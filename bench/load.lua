-- The load of all operations: wrk -s load.lua ADDRESS -- OPERATION KEY ANIMALS PADDING UNUSED [check]
--
-- Animals are created with names of 12 characters, and PADDING after them. Every third animal is available. Orders begin
-- with number UNUSED of the available animals, because each can be ordered once.
-- wrk itself counts only statuses from 400 as errors. With `check`, the exact status and the shape of
-- every body are checked. That costs more than the request costs the server, so the benchmark checks
-- during the warm-up only.

-- Status and number of animals of a correct response.
local expected = {
  list20 = { [200] = 20 },
  list20cold = { [200] = 20 },
  list100 = { [200] = 100 },
  get = { [200] = 1 },
  create = { [201] = 1 },
  message = { [202] = 0 },
  order = { [201] = 0 },
  orderfar = { [201] = 0 },
}

-- A request whose variable part is a few digits is split around them. A body has always eight
-- digits, so that its length is constant.
local function around_digits(method, path, body)
  return wrk.format(method, path, nil, body):match("^(.-)########(.*)$")
end

local requests
function requests(operation, animals, padding, unused)
  local random = math.random
  if operation == "list20" or operation == "list100" then
    local path = operation == "list20" and "/v1/pets?limit=20&status=available" or "/v1/pets?limit=100"
    local text = wrk.format("GET", path)
    return function() return text end
  elseif operation == "list20cold" then
    -- After any animal but the last ones, so that each page is full. A small database has so few pages that all of
    -- them would be cached. There, requests the first page with random numbers below all ids.
    local before, after = around_digits("GET", "/v1/pets?limit=20&status=available&after=########")
    local first, last = 0, animals - 100
    if animals < 50000 then first, last = -100000000, -1 end
    return function() return before .. random(first, last) .. after end
  elseif operation == "get" then
    local before, after = around_digits("GET", "/v1/pets/########")
    return function() return before .. random(animals) .. after end
  elseif operation == "create" then
    local body = '{"name":"pet-########' .. padding .. '","categoryId":7,"status":"available"}'
    local before, after = around_digits("POST", "/v1/pets", body)
    return function() return before .. random(10000000, 99999999) .. after end
  elseif operation == "message" then
    local before, after = around_digits("POST", "/v1/messages", '{"message":"Hello, number ########"}')
    return function() return before .. random(10000000, 99999999) .. after end
  elseif operation == "order" or operation == "orderfar" then
    -- Neighbours one after another, or each once in steps of the golden ratio: far from all recent ones.
    local available, step = math.floor(animals / 3), operation == "order" and 1 or 206012
    local before, after = around_digits("POST", "/v1/store/orders", '{"petId":########}')
    return function()
      local id = 1 + 3 * (unused * step % available)
      unused = unused + 1
      return before .. string.format("%8d", id) .. after
    end
  elseif operation == "mix" then
    local list, get, create = requests("list20"), requests("get", animals), requests("create", animals, padding)
    return function()
      local draw = random(100)
      if draw <= 10 then return create() elseif draw <= 55 then return list() else return get() end
    end
  end
  error("no such operation: " .. operation)
end

-- With `mix`, the response may be that of any of its three operations.
local function right_answers(operation)
  if operation ~= "mix" then return { expected[operation] } end
  return { expected.list20, expected.get, expected.create }
end

function init(args)
  local operation, key, animals, padding = args[1], args[2], tonumber(args[3]), args[4]
  local unused, check = tonumber(args[5]), args[6]
  math.randomseed(1)
  wrk.headers["Authorization"] = "Bearer " .. key
  wrk.headers["Content-Type"] = "application/json"
  request = requests(operation, animals, padding, unused)

  wrong = 0
  if not check then return end
  local answers = right_answers(operation)
  response = function(status, _, body)
    local _, names = body:gsub('"name":"', "")
    for _, answer in ipairs(answers) do
      if answer[status] == names then return end
    end
    wrong = wrong + 1
  end
end

local threads = {}
function setup(thread) table.insert(threads, thread) end

function done(summary, latency)
  local errors, wrong = summary.errors, 0
  for _, thread in ipairs(threads) do wrong = wrong + thread:get("wrong") end
  wrong = math.max(wrong, errors.status) -- With `check`, both count the same responses.
  io.write(string.format(
    '{"requests":%d,"bytes":%d,"p50_us":%d,"p99_us":%d,"wrong":%d,"broken":%d}\n',
    summary.requests, summary.bytes, latency:percentile(50), latency:percentile(99), wrong,
    errors.connect + errors.read + errors.write + errors.timeout
  ))
end
