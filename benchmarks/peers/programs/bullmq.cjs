// BullMQ: `node bullmq.cjs work` runs tasks; `node bullmq.cjs submit` does what submit.py does.
const fs = require("node:fs");
const readline = require("node:readline");
const { Queue, Worker } = require("bullmq");
const IORedis = require("ioredis");

const connection = new IORedis(process.env.BENCH_REDIS_URL, { maxRetriesPerRequest: null });
const params = { prompt: "x".repeat(137) };
const now = () => process.hrtime.bigint(); // the monotonic clock, which all processes of a machine share

function work() {
  const marks = fs.openSync(process.env.BENCH_MARKS, "a");
  new Worker(
    "bench",
    async () => {
      fs.writeSync(marks, `${String(now()).padStart(19, "0")}\n`);
      return { ok: true };
    },
    { connection },
  );
}

async function submit() {
  const queue = new Queue("bench", { connection });
  const ways = {
    async single(number) {
      for (let index = 0; index < number; index++) await queue.add("noop", params);
    },
    async bulk(number) {
      await queue.addBulk(Array.from({ length: number }, () => ({ name: "noop", data: params })));
    },
  };
  await queue.waitUntilReady();
  console.log("ready");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [way, number] = line.split(" ");
    const began = now();
    await ways[way](Number(number));
    console.log(`${began} ${now()}`);
  }
  process.exit();
}

({ work, submit })[process.argv[2]]();
