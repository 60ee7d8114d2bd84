import { found, type Moment, required, type ServiceAnswers } from './answers.js';

/** Epochs begin with the first block and last this many seconds. */
const EPOCHS = [
  { identifier: 'hour', seconds: 3600 },
  { identifier: 'day', seconds: 86_400 },
  { identifier: 'week', seconds: 604_800 },
];

type Epoch = (typeof EPOCHS)[number];

function numberOf({ seconds }: Epoch, { height, blocks }: Moment): number {
  const elapsed = blocks.timeOf(height).getTime() - blocks.timeOf(1).getTime();
  return Math.floor(elapsed / 1000 / seconds) + 1;
}

function infoOf(epoch: Epoch, moment: Moment) {
  const { identifier, seconds } = epoch;
  const { blocks } = moment;
  const started = blocks.timeOf(1).getTime();
  const current = numberOf(epoch, moment);
  const since = started + (current - 1) * seconds * 1000;
  const msPerBlock = started - blocks.timeOf(0).getTime();
  return {
    identifier,
    start_time: new Date(started).toISOString(),
    duration: `${seconds}s`,
    current_epoch: String(current),
    current_epoch_start_time: new Date(since).toISOString(),
    epoch_counting_started: true,
    current_epoch_start_height: String(1 + Math.ceil((since - started) / msPerBlock)),
  };
}

export const epochsAnswers: ServiceAnswers = {
  EpochInfos: (_, moment) => ({ epochs: EPOCHS.map((epoch) => infoOf(epoch, moment)) }),
  CurrentEpoch(request, moment) {
    const identifier = required(request, 'identifier');
    const epoch = found(EPOCHS, (one) => one.identifier === identifier, `epoch ${identifier}`);
    return { current_epoch: String(numberOf(epoch, moment)) };
  },
};
