// Loaded into a host: on SIGUSR2 it prints how long it blocked its event loop at most since the last time, in milliseconds
// that its main thread ran. Time in which other processes had the processor does not count.
const TICK_MS = 2;

let longest = 0;
let before = process.threadCpuUsage();
setInterval(() => {
  const { user, system } = process.threadCpuUsage(before);
  longest = Math.max(longest, (user + system) / 1000);
  before = process.threadCpuUsage();
}, TICK_MS).unref();

process.on('SIGUSR2', () => {
  process.stdout.write(`blocked: ${longest}\n`);
  longest = 0;
});
