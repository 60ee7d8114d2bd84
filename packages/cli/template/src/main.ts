import { serve } from '@sibyl/host';
import { dice } from './dice.js';

process.exitCode = await serve({ plugins: [dice] });
