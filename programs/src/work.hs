-- Data.Map on the heap, threads of both kinds, pinned arrays, exceptions, a stack that grows past its limit, a child.
import Control.Concurrent
import Control.Exception
import Control.Monad
import qualified Data.Map.Strict as Map
import Data.List (foldl')
import Foreign.Marshal.Array
import Foreign.Storable
import Foreign.Ptr
import System.Mem
import System.Process

main :: IO ()
main = do
  let table = foldl' (\m n -> Map.insert ((n * 7919) `mod` 500009) n m) Map.empty [1 .. 300000 :: Int]
  putStrLn ("map " ++ show (Map.size table, Map.foldl' (+) 0 table))
  performMajorGC
  boxes <- forM [1 .. 200 :: Int] $ \k -> do
    box <- newEmptyMVar
    _ <- forkIO (putMVar box $! sum [1 .. k * 1000])
    return box
  sums <- mapM takeMVar boxes
  putStrLn ("threads " ++ show (sum sums))
  os <- forM [1 .. 4 :: Int] $ \k -> do
    box <- newEmptyMVar
    _ <- forkOS (putMVar box $! length (show (product [1 .. toInteger (k * 2000)])))
    return box
  mapM takeMVar os >>= putStrLn . ("os threads " ++) . show
  total <- allocaArray 10000000 $ \p -> do
    forM_ [0, 4096 .. 9999999] $ \i -> pokeElemOff p i (fromIntegral i :: Int)
    foldM (\s i -> (s +) <$> peekElemOff (p :: Ptr Int) i) 0 [0, 4096 .. 9999999]
  putStrLn ("pinned " ++ show total)
  r <- try (evaluate (foldr (+) 0 [1 .. 100000000 :: Integer])) :: IO (Either AsyncException Integer)
  putStrLn ("deep " ++ either show show r)
  d <- try (evaluate (1 `div` (0 :: Int))) :: IO (Either ArithException Int)
  putStrLn ("zero " ++ either show show d)
  performMajorGC
  putStrLn ("map again " ++ show (Map.lookup 7919 table))
  readProcess "sh" ["-c", "echo child"] "" >>= putStr
