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
  const started = moment.blocks.timeOf(1);
  const current = numberOf(epoch, moment);
  const since = new Date(started.getTime() + (current - 1) * seconds * 1000);
  return {
    identifier,
    start_time: started.toISOString(),
    duration: `${seconds}s`,
    current_epoch: String(current),
    current_epoch_start_time: since.toISOString(),
    epoch_counting_started: true,
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
