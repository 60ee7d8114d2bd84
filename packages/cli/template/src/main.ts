import { serve } from '@sibyl/host';
import { plugins } from './plugins.js';

process.exitCode = await serve({ plugins });
